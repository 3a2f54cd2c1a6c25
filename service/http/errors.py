"""Every error that a client can get: status, type, code, parameter, and whether to retry.

Every error, also of the framework, has the body `{"error": {"message", "type", "param", "code"}}`, the only one that
OpenAI's clients read. The header `x-should-retry` overrules their decision by the status.
"""

from dataclasses import dataclass

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from audio.errors import AudioError
from service.dispatch.errors import (
    DeadlineExceededError,
    DeviceMemoryError,
    DrainingError,
    EngineLostError,
    ModelNotReadyError,
    NoDecodeProcessError,
    OverloadedError,
    RefusedError,
    TranscriptionFailedError,
)

INVALID_REQUEST = "invalid_request_error"
RATE_LIMIT_ERROR = "rate_limit_error"
SERVER_ERROR = "server_error"


class RequestError(Exception):
    """A request that is refused because of its content or its key.

    Attributes:
        status: HTTP status.
        code: stable name of the fault.
        param: the form field at fault, if one is.
        retry_after: seconds after which it may succeed; None if it never will.
        should_retry: value of `x-should-retry`; None omits it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        param: str | None = None,
        status: int = 400,
        retry_after: int | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.should_retry = should_retry
        self.status = status
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class _Row:
    status: int
    code: str
    retry_after: int | None = None
    should_retry: bool | None = None


_DISPATCH_ERRORS: dict[type[Exception], _Row] = {
    OverloadedError: _Row(503, "overloaded", should_retry=True),
    DrainingError: _Row(503, "draining", should_retry=True),
    ModelNotReadyError: _Row(503, "model_loading", should_retry=True),
    DeadlineExceededError: _Row(503, "deadline_exceeded", should_retry=True),
    NoDecodeProcessError: _Row(503, "decoding_unavailable", should_retry=True),
    # The same content lost two engines; a third try would likely lose a third one.
    EngineLostError: _Row(503, "engine_lost", retry_after=2, should_retry=False),
    DeviceMemoryError: _Row(500, "audio_too_long_for_device", should_retry=False),
    TranscriptionFailedError: _Row(500, "internal_error", should_retry=False),
}

_FRAMEWORK_CODES = {404: "not_found", 405: "method_not_allowed", 400: "malformed_body"}
_SHORTAGE_SECONDS = 60
_NO_THREAD = "can't start new thread"  # CPython has no type of its own for it
_INTERNAL = _Row(500, "internal_error", should_retry=False)


class ErrorResponse(Response):
    """An error in the shape of the API; keeps its code for logs and metrics."""

    def __init__(self, row: _Row, message: str, param: str | None) -> None:
        self.code = row.code
        kind = RATE_LIMIT_ERROR if row.status == 429 else SERVER_ERROR if row.status >= 500 else INVALID_REQUEST
        body = {"error": {"message": message, "type": kind, "param": param, "code": row.code}}
        headers = {}
        if row.retry_after is not None:
            headers["retry-after"] = str(row.retry_after)
        if row.should_retry is not None:
            headers["x-should-retry"] = str(row.should_retry).lower()
        super().__init__(orjson.dumps(body), row.status, headers, "application/json")


def error_response(error: Exception) -> ErrorResponse:
    """Return the answer for an exception, by the table."""
    match error:
        case RequestError():
            should_retry = False if error.status in (408, 413) else error.should_retry
            row = _Row(error.status, error.code, error.retry_after, should_retry)
            response = ErrorResponse(row, str(error), error.param)
            if error.status == 401:
                response.headers["www-authenticate"] = "Bearer"
            return response
        case AudioError():
            return ErrorResponse(_Row(400, error.code), str(error), "file")
        case HTTPException():
            row = _Row(error.status_code, _FRAMEWORK_CODES.get(error.status_code, "invalid_request"))
            response = ErrorResponse(row, str(error.detail), None)
            response.headers.update(error.headers or {})
            return response
        case MemoryError():
            error = OverloadedError("The service has no memory for this request now.", _SHORTAGE_SECONDS)
        case RuntimeError() if str(error) == _NO_THREAD:
            error = OverloadedError("The service can start no thread for this request now.", _SHORTAGE_SECONDS)
    row = _DISPATCH_ERRORS.get(type(error), _INTERNAL)
    if row is _INTERNAL:
        return ErrorResponse(row, "The server failed on this request.", None)
    retry_after = error.retry_after if isinstance(error, RefusedError) else row.retry_after
    return ErrorResponse(_Row(row.status, row.code, retry_after, row.should_retry), str(error), None)
