"""A job as it is kept and as clients see it."""

from dataclasses import dataclass
from typing import Any, Literal

JobState = Literal["queued", "in_progress", "completed", "failed", "cancelled"]
DeliveryState = Literal["pending", "delivered", "failed"]
FINISHED: tuple[JobState, ...] = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The webhook of a job.

    Attributes:
        url: where to.
        secret: what its signature is made with.
        state: of what is to be told; pending before there is anything to tell, too.
        attempts: made so far.
        error: of the last one, if it failed.
    """

    url: str
    secret: str
    state: DeliveryState = "pending"
    attempts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A recording, what is asked for, and what became of it.

    Attributes:
        id: what clients call it; not to be guessed.
        caller: name of the API key it was made with; None where the API is open.
        state: where it is.
        model: id of the model it is for.
        request: what is asked for, as who transcribes it wrote it down.
        file_bytes: size of the recording.
        created: Unix time.
        started: Unix time at which it was last begun.
        finished: Unix time at which it was done, failed or was cancelled.
        expires: Unix time at which it is forgotten; None before it is finished.
        attempts: how often it was begun and neither finished nor put back.
        audio_seconds: length of the recording, once it is known.
        error_code: of a failed job; what a request would have been answered.
        error_message: in words.
        delivery: its webhook, if it has one.
        traceparent: of the request that it was made with, if that was traced.
    """

    id: str
    caller: str | None
    state: JobState
    model: str
    request: bytes
    file_bytes: int
    created: float
    started: float | None = None
    finished: float | None = None
    expires: float | None = None
    attempts: int = 0
    audio_seconds: float | None = None
    error_code: str | None = None
    error_message: str | None = None
    delivery: Delivery | None = None
    traceparent: str | None = None

    @property
    def is_finished(self) -> bool:
        """Nothing more will become of it."""
        return self.state in FINISHED

    def described(self) -> dict[str, Any]:
        """Return it as clients see it, in answers and in webhooks."""
        delivery = self.delivery
        return {
            "id": self.id,
            "object": "audio.job",
            "status": self.state,
            "model": self.model,
            "created_at": int(self.created),
            "started_at": _whole(self.started),
            "finished_at": _whole(self.finished),
            "expires_at": _whole(self.expires),
            "bytes": self.file_bytes,
            "duration": self.audio_seconds,
            "error": {"code": self.error_code, "message": self.error_message} if self.error_code else None,
            "webhook": delivery
            and {
                "url": delivery.url,
                "status": delivery.state,
                "attempts": delivery.attempts,
                "error": delivery.error,
            },
        }


@dataclass(frozen=True, slots=True)
class Result:
    """What a request for the same would have been answered.

    Attributes:
        status: HTTP status.
        media_type: of the body.
        body: the transcript, or the error.
        error_code: of an error.
        error_message: of an error.
        audio_seconds: length of the recording, if it was decoded.
    """

    status: int
    media_type: str
    body: bytes
    error_code: str | None = None
    error_message: str | None = None
    audio_seconds: float | None = None


def _whole(moment: float | None) -> int | None:
    return None if moment is None else int(moment)
