"""Builds the FastAPI application: routes, middleware, and one form of all errors."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Match

from audio.errors import AudioError
from service.dispatch.errors import DispatchError
from service.http.core import LocalCore
from service.http.errors import ErrorResponse, RequestError, error_response, invalid
from service.http.front import Front
from service.http.routes import jobs, models, probes, transcriptions
from service.http.routes.pages import page_router
from service.http.telemetry import Telemetry
from service.http.wire.gate import FirstGate

# Response headers that pages of other origins may read; OpenAI's client needs two of them for its retries.
_READABLE_HEADERS = (
    *("openai-processing-ms", "retry-after", "server-timing", "traceresponse"),
    *("x-request-id", "x-should-retry", "x-steno-model"),
    *(f"x-ratelimit-{what}-{of}" for of in ("requests", "audio-seconds") for what in ("limit", "remaining", "reset")),
)


class Fault(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """The body of every error."""

    error: Fault


_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is wrong, or over a limit."},
    "5XX": {"model": ErrorBody, "description": "No answer now, or a fault of the server; the code says which."},
}


def create_app(front: Front) -> FastAPI:
    """Return the application of the main process, or of a worker, which has the routes of transcriptions alone."""
    app = FastAPI(
        title="Steno",
        version=version("steno"),
        description="Recorded speech to text, behind the audio API that OpenAI's clients speak.",
        responses=_ERRORS,
        docs_url=None,
        redoc_url=None,
        # Of /path/ to /path, which behind a proxy for https would send recording and key again by plain http.
        redirect_slashes=False,
    )
    app.state.front = front
    # The framework tries the routes in this order, so the most requested ones come first.
    app.include_router(transcriptions.router)
    if isinstance(front.core, LocalCore):
        app.state.core = front.core
        for router in (probes.router, jobs.router, models.router, page_router()):
            app.include_router(router)
    most = front.settings.max_upload_bytes
    app.add_middleware(FirstGate, core=front.core, access=front.access, max_upload_bytes=most)
    app.add_middleware(Telemetry, metrics=front.metrics, tracer=front.tracer)
    if front.settings.cors_origins:  # added last, so outermost: pages of other origins can read every error
        app.add_middleware(
            CORSMiddleware,
            allow_origins=front.settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=_READABLE_HEADERS,
        )
    for kind in (RequestError, AudioError, DispatchError, HTTPException):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    return app


async def _answer_error(request: Request, error: Exception) -> ErrorResponse:
    response = error_response(error)
    if response.status_code == 405:
        response.headers["allow"] = ", ".join(_allowed(request))
    request.state.record.error = response.code
    return response


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes at the request's path; the framework names only those of the first route."""
    methods = set()
    for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            methods.add(method)
    return sorted(methods)


async def _answer_invalid(request: Request, error: Exception) -> ErrorResponse:
    """Answer an invalid request in place of the framework, whose 422 has another form."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    return await _answer_error(request, invalid(str(fault["loc"][-1]), fault["msg"]))
