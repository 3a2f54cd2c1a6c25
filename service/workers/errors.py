"""Errors on their way from the main process to a worker."""

from service.demand import DemandError
from service.dispatch.errors import (
    DeadlineExceededError,
    DeviceMemoryError,
    DrainingError,
    EngineLostError,
    ModelNotReadyError,
    OverloadedError,
    RefusedError,
    TranscriptionFailedError,
)
from service.http.errors import shortage_of
from service.workers.protocol import Failed

_REFUSALS = {
    kind.__name__: kind for kind in (OverloadedError, DrainingError, ModelNotReadyError, DeadlineExceededError)
}
_FAILURES = {kind.__name__: kind for kind in (EngineLostError, DeviceMemoryError, TranscriptionFailedError)}


def failed(call: int, error: BaseException) -> Failed:
    """Return the message for an error."""
    error = shortage_of(error) or error
    retry_after = error.retry_after if isinstance(error, RefusedError | DemandError) else None
    return Failed(call, type(error).__name__, str(error), retry_after)


def error_of(message: Failed) -> Exception:
    """Return the error of a message."""
    kind, text, retry_after = message.kind, message.message, message.retry_after
    if kind in _REFUSALS:
        return _REFUSALS[kind](text, retry_after or 1)
    if kind in _FAILURES:
        return _FAILURES[kind](text)
    if kind == DemandError.__name__:
        return DemandError(text, retry_after or 1)
    return RuntimeError(f"the main process failed: {kind}: {text}")
