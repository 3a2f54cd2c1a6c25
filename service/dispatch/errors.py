"""Errors of well-formed requests that get no transcript."""


class DispatchError(Exception):
    """The root; its message is for the caller of the API."""


class RefusedError(DispatchError):
    """A request that may succeed later."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # whole seconds, 1 to 60, after which a retry has a chance


class OverloadedError(RefusedError):
    """The service has no room for it now."""


class DrainingError(RefusedError):
    """The service is shutting down."""


def stopped() -> DrainingError:
    """Return the error of a request that was accepted, and not done when the service stopped."""
    return DrainingError("The service stopped before this request was done.", retry_after=1)


class ModelNotReadyError(RefusedError):
    """Its model is not loaded yet."""


class DeadlineExceededError(RefusedError):
    """It was accepted, and waited too long."""


class NoDecodeProcessError(RefusedError):
    """The system has no room for a process that decodes it."""


class EngineLostError(DispatchError):
    """Two engines died under it, or none will have its model any more."""


class DeviceMemoryError(DispatchError):
    """It does not fit the device even alone."""


class TranscriptionFailedError(DispatchError):
    """The engine raised an error on it alone."""
