"""Every error that a client can get: status, type, code, parameter, and whether to retry.

Every error, also of the framework, has the body `{"error": {"message", "type", "param", "code"}}`, the only one that
OpenAI's clients read. The header `x-should-retry` overrules their decision by the status.
"""

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
from service.http.error_codes import ErrorCode


class RequestError(Exception):
    """A request that is refused because of its content or its key.

    Attributes:
        status: HTTP status; the usual one of the code unless given.
        param: the form field at fault, if one is.
        retry_after: seconds after which it may succeed; None if it never will.
        should_retry: value of `x-should-retry`; None omits it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode,
        param: str | None = None,
        status: int | None = None,
        retry_after: int | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.should_retry = should_retry
        self.status = status or code.value.status
        self.code = code
        self.param = param


def unsupported(param: str, message: str) -> RequestError:
    """Return the error for a field whose value is right, but not for this model or service."""
    return RequestError(message, code=ErrorCode.UNSUPPORTED_VALUE, param=param)


def invalid(param: str, fault: str) -> RequestError:
    """Return the error for a field whose value is wrong."""
    return RequestError(f"{param}: {fault}.", code=ErrorCode.INVALID_VALUE, param=param)


def missing(param: str, message: str) -> RequestError:
    """Return the error for a field that must be there."""
    return RequestError(message, code=ErrorCode.MISSING_REQUIRED_PARAMETER, param=param)


_DISPATCH_ERRORS: dict[type[Exception], ErrorCode] = {
    OverloadedError: ErrorCode.OVERLOADED,
    DrainingError: ErrorCode.DRAINING,
    ModelNotReadyError: ErrorCode.MODEL_LOADING,
    DeadlineExceededError: ErrorCode.DEADLINE_EXCEEDED,
    NoDecodeProcessError: ErrorCode.DECODING_UNAVAILABLE,
    EngineLostError: ErrorCode.ENGINE_LOST,
    DeviceMemoryError: ErrorCode.AUDIO_TOO_LONG_FOR_DEVICE,
    TranscriptionFailedError: ErrorCode.INTERNAL_ERROR,
}

_FRAMEWORK_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED, 400: ErrorCode.MALFORMED_BODY}
_ENGINE_SECONDS = 2  # after which another request may find an engine again
_SHORTAGE_SECONDS = 60
_NO_THREAD = "can't start new thread"  # CPython has no type of its own for it


class ErrorResponse(Response):
    """An error in the shape of the API; keeps its code for logs and metrics."""

    def __init__(self, error: RequestError) -> None:
        self.code = str(error.code)
        status = error.status
        kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
        body = {"error": {"message": str(error), "type": kind, "param": error.param, "code": self.code}}
        headers = {}
        if error.retry_after is not None:
            headers["retry-after"] = str(error.retry_after)
        should_retry = False if status in (408, 413) else error.should_retry
        if should_retry is not None:
            headers["x-should-retry"] = str(should_retry).lower()
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        super().__init__(orjson.dumps(body), status, headers, "application/json")


def shortage_of(error: BaseException) -> OverloadedError | None:
    """Return the refusal for an error of a process that is out of memory or threads; None for any other error."""
    if isinstance(error, MemoryError):
        return OverloadedError("The service has no memory for this request now.", _SHORTAGE_SECONDS)
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return OverloadedError("The service can start no thread for this request now.", _SHORTAGE_SECONDS)
    return None


def error_response(error: Exception) -> ErrorResponse:
    """Return the answer for an exception, by the table."""
    match error:
        case RequestError():
            return ErrorResponse(error)
        case AudioError():
            return ErrorResponse(RequestError(str(error), code=ErrorCode[error.code.upper()], param="file"))
        case HTTPException():
            code = _FRAMEWORK_CODES.get(error.status_code, ErrorCode.INVALID_REQUEST)
            response = ErrorResponse(RequestError(str(error.detail), code=code, status=error.status_code))
            response.headers.update(error.headers or {})
            return response
    error = shortage_of(error) or error
    known = _DISPATCH_ERRORS.get(type(error))
    code, message = known or ErrorCode.INTERNAL_ERROR, str(error) if known else "The server failed on this request."
    # A lost engine is replaced, but the same content lost two; a third try would likely lose a third one.
    retry_after = _ENGINE_SECONDS if code is ErrorCode.ENGINE_LOST else None
    if isinstance(error, RefusedError):
        retry_after = error.retry_after
    return ErrorResponse(
        RequestError(message, code=code, retry_after=retry_after, should_retry=code.value.is_temporary)
    )
