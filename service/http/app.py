"""Builds the FastAPI application: routes, one shape for all errors, telemetry around everything."""

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from audio.errors import AudioError
from service.dispatch.errors import DispatchError
from service.http.errors import ErrorResponse, RequestError, error_response
from service.http.front import Front
from service.http.pages import page_router
from service.http.routes import api, operations
from service.http.telemetry import Telemetry, note_error


def create_app(front: Front) -> FastAPI:
    """Return the application that serves a front."""
    app = FastAPI(
        title="Steno",
        version=version("steno"),
        description="Recorded speech to text, behind the audio API that OpenAI's clients speak.",
    )
    app.state.front = front
    app.include_router(api)
    app.include_router(operations)
    app.include_router(page_router())
    app.add_middleware(Telemetry, metrics=front.metrics)
    for kind in (RequestError, AudioError, DispatchError, HTTPException):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    return app


async def _answer_error(request: Request, error: Exception) -> ErrorResponse:
    response = error_response(error)
    note_error(request.state.record, response)
    return response


async def _answer_invalid(request: Request, error: Exception) -> ErrorResponse:
    """The framework's own validation, which would answer 422 in a shape of its own."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    param = str(fault["loc"][-1])
    return await _answer_error(request, RequestError(f"{param}: {fault['msg']}.", code="invalid_value", param=param))
