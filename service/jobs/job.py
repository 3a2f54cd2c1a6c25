"""A job, as it is stored and as clients see it."""

from dataclasses import dataclass
from typing import Any, Literal

JobState = Literal["queued", "in_progress", "completed", "failed"]
DeliveryState = Literal["pending", "delivered", "failed"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The webhook of a job.

    Attributes:
        secret: the key of its signature.
        client: whose share of look-ups and connections it takes: a key, or the network of an address without one.
        state: also pending before the job is finished.
        error: error of the last attempt, if it failed.
    """

    url: str
    secret: str
    client: str
    state: DeliveryState = "pending"
    attempts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A recording, its request and its outcome.

    Attributes:
        id: cannot be guessed.
        caller: name of the API key it was made with; None where the API is open.
        request: the encoded request; only `http/jobs.py` reads it.
        file_bytes: size of the recording's file.
        created: Unix time, as the next three.
        started: of its last start.
        finished: when it was completed or failed.
        expires: when it is deleted; None before it is finished.
        attempts: number of starts; those that ended for want of room, or by a shutdown, do not count.
        refusals: number of starts at which the service had no room for it.
        audio_seconds: length of the recording, once it is known.
        error_code: code of a failed job's error, as in an answer.
        traceparent: that of the request that made it, if it was traced.
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
    refusals: int = 0
    audio_seconds: float | None = None
    error_code: str | None = None
    error_message: str | None = None
    delivery: Delivery | None = None
    traceparent: str | None = None

    def described(self) -> dict[str, Any]:
        """Return its public description, for answers and webhooks."""
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
class JobResult:
    """The result of a job: the answer that a request without a job would have got, a transcript or an error.

    Attributes:
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
