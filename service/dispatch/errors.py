"""Errors of well-formed requests that get no transcript.

DispatchError
├── RefusedError                 try again later
│   ├── OverloadedError          a queue or a budget is full
│   ├── DrainingError            the service is shutting down
│   ├── ModelNotReadyError       no engine has been ready yet
│   ├── DeadlineExceededError    it was accepted, and waited too long
│   └── NoDecodeProcessError     the system has no room for a process that decodes it
├── EngineLostError              the engine died under it, and its successor too
├── DeviceMemoryError            it does not fit the device even alone
└── TranscriptionFailedError     the engine raised an error on it alone
"""

STOPPED = "The service stopped before this request was done."


class DispatchError(Exception):
    """The root; its message is for the caller of the API."""


class RefusedError(DispatchError):
    """A request that may succeed later.

    Attributes:
        retry_after: whole seconds, 1 to 60, after which a retry has a chance.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OverloadedError(RefusedError):
    """A queue or a budget is full."""


class DrainingError(RefusedError):
    """The service is shutting down."""


class ModelNotReadyError(RefusedError):
    """No engine has been ready yet."""


class DeadlineExceededError(RefusedError):
    """It was accepted, and waited too long."""


class NoDecodeProcessError(RefusedError):
    """The system has no room for a process that decodes it."""


class EngineLostError(DispatchError):
    """The engine died under it, and its successor too."""


class DeviceMemoryError(DispatchError):
    """It does not fit the device even alone."""


class TranscriptionFailedError(DispatchError):
    """The engine raised an error on it alone."""
