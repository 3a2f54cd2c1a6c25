"""Errors on their way from the main process to a worker."""

from service.demand import DemandError
from service.dispatch.errors import (
    DeadlineExceededError,
    DeviceMemoryError,
    DispatchError,
    DrainingError,
    EngineLostError,
    ModelNotReadyError,
    OverloadedError,
    RefusedError,
    TranscriptionFailedError,
)
from service.workers.protocol import Failed

_REFUSALS = {
    kind.__name__: kind for kind in (OverloadedError, DrainingError, ModelNotReadyError, DeadlineExceededError)
}
_FAILURES = {kind.__name__: kind for kind in (EngineLostError, DeviceMemoryError, TranscriptionFailedError)}
_WITHDRAWN = "withdrawn"


def failed(call: int, error: BaseException) -> Failed:
    """Return the message for an error."""
    kind, message = type(error).__name__, str(error)
    match error:
        case RefusedError():
            return Failed(call, kind, message, error.retry_after)
        case DispatchError():
            return Failed(call, kind, message)
        case DemandError():
            return Failed(call, kind, message, error.retry_after)
    return Failed(call, _WITHDRAWN, message)


def error_of(message: Failed) -> Exception:
    """Return the error of a message."""
    kind, text, retry_after = message.kind, message.message, message.retry_after
    if kind in _REFUSALS:
        return _REFUSALS[kind](text, retry_after or 1)
    if kind in _FAILURES:
        return _FAILURES[kind](text)
    if kind == DemandError.__name__:
        return DemandError(text, retry_after or 1)
    return RuntimeError(f"the main process failed: {text}")
