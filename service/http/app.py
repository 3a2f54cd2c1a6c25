"""Builds the FastAPI application: routes, one shape for all errors, telemetry around everything."""

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Match

from audio.errors import AudioError
from service.dispatch.errors import DispatchError
from service.http import admin, debug, jobs, models, probes, transcriptions
from service.http.error_codes import ErrorCode
from service.http.errors import ErrorResponse, RequestError, error_response
from service.http.front import Backend, Front
from service.http.gate import FirstGate
from service.http.head import HeadAsGet
from service.http.pages import page_router
from service.http.telemetry import Telemetry, note_error

# Headers that pages of other origins may read; OpenAI's client needs them for its retries.
_READABLE_HEADERS = (
    *(
        "openai-processing-ms",
        "retry-after",
        "server-timing",
        "traceresponse",
        "x-request-id",
        "x-should-retry",
        "x-steno-model",
    ),
    *(f"x-ratelimit-{what}-{of}" for of in ("requests", "audio-seconds") for what in ("limit", "remaining", "reset")),
)


def create_app(front: Front, backend: Backend | None) -> FastAPI:
    """Return the application of a process.

    Args:
        front: answers requests for transcripts.
        backend: answers all other requests; without it, there are no other routes.
    """
    app = FastAPI(
        title="Steno",
        version=version("steno"),
        description="Recorded speech to text, behind the audio API that OpenAI's clients speak.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.front = front
    # The framework looks through the routes in this order, so those that are asked for most come first.
    app.include_router(transcriptions.router)
    if backend is not None:
        app.state.backend = backend
        for router in (probes.router, jobs.router, models.router, admin.router, debug.router, page_router()):
            app.include_router(router)
    app.add_middleware(HeadAsGet)
    app.add_middleware(
        FirstGate,
        core=front.core,
        access=front.access,
        max_upload_bytes=front.settings.max_upload_bytes,
    )
    app.add_middleware(Telemetry, metrics=front.metrics, tracer=front.tracer)
    if front.settings.cors_origins:  # outermost, so that pages of other origins can read every error
        app.add_middleware(
            CORSMiddleware,
            allow_origins=front.settings.cors_origins,
            allow_methods=("GET", "POST"),
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
    note_error(request.state.record, response)
    return response


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes at a path; the framework returns only those of the first route."""
    methods = set()
    for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            methods.add(method)
    return sorted(methods)


async def _answer_invalid(request: Request, error: Exception) -> ErrorResponse:
    """Answer a validation error of the framework, which itself would answer 422 in another shape."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    param = str(fault["loc"][-1])
    return await _answer_error(
        request, RequestError(f"{param}: {fault['msg']}.", code=ErrorCode.INVALID_VALUE, param=param)
    )
