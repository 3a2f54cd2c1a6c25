"""Rate limits of a key, and OpenAI's `x-ratelimit-` headers about them.

Each limit per minute is a token bucket: it holds at most a minute's worth, starts full, and is refilled evenly.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.keys import KeyLimits

_MINUTE = 60.0
# All of OpenAI's clients obey a Retry-After of up to a minute; with a longer one, older ones retry after a second.
_CLIENTS_WAIT = 60


class _Bucket:
    """A token bucket of a minute's worth, refilled evenly; it may be overdrawn."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._left = limit
        self._at = clock()

    @property
    def left(self) -> float:
        """The current level; negative if it is overdrawn."""
        now = self._clock()
        self._left = min(self.limit, self._left + (now - self._at) * self.limit / _MINUTE)
        self._at = now
        return self._left

    def take(self, amount: float) -> None:
        """Take ``amount`` out; a negative amount is put back."""
        self._left = self.left - amount

    def seconds_until(self, level: float) -> float:
        """Return the seconds until the bucket is filled to ``level``."""
        return max(0.0, (level - self.left) * _MINUTE / self.limit)


class Allowance:
    """The limits that keys of one name share, and what is left; callers without a key have no name.

    Attributes:
        under_way: transcriptions that are not finished.
    """

    def __init__(self, limits: KeyLimits, clock: Callable[[], float] = time.monotonic, name: str | None = None) -> None:
        self.limits = limits
        self.name = name
        self.under_way = 0
        per_minute, audio = limits.requests_per_minute, limits.audio_seconds_per_minute
        self._requests = None if per_minute is None else _Bucket(per_minute, clock)
        self._audio = None if audio is None else _Bucket(audio, clock)

    @contextmanager
    def enter(self, retry_after: int) -> Iterator[None]:
        """Count a request, in the block as under way, and in its minute unless it ends with 503.

        Raises:
            RequestError: if too many are under way, with this Retry-After, or a minute's limit is used up.
        """
        self._begin(retry_after)
        self.under_way += 1
        try:
            yield
        except Exception as error:
            if self._requests is not None and error_response(error).status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                self._requests.take(-1)
            raise
        finally:
            self.under_way -= 1

    def _begin(self, retry_after: int) -> None:
        most = self.limits.max_requests
        if most is not None and self.under_way >= most:
            raise _refusal(f"This key has {most} requests under way, which is all it may have at once.", retry_after)
        self.check_audio()
        if self._requests is not None:
            if self._requests.left < 1:
                message = f"This key may begin {self._requests.limit:g} requests a minute."
                raise _refusal(message, self._requests.seconds_until(1))
            self._requests.take(1)

    def check_audio(self) -> None:
        """Raise RequestError if a minute's limit on audio is used up."""
        # A millionth, not 0: a client that waits just until the bucket is at 0 would be refused again.
        if self._audio is not None and self._audio.left < self._audio.limit * 1e-6:
            message = f"This key may have {self._audio.limit:g} seconds of audio transcribed a minute."
            raise _refusal(message, self._audio.seconds_until(self._audio.limit * 1e-6))

    async def until_audio(self) -> None:
        """Wait until audio is left."""
        while True:
            try:
                self.check_audio()
            except RequestError as refusal:
                await asyncio.sleep(refusal.retry_after or 1)
            else:
                return

    @contextmanager
    def audio(self, seconds: float) -> Iterator[None]:
        """Count the audio of a recording, unless the block fails.

        It may be longer than what is left; later recordings are then refused until the bucket is no longer overdrawn.
        So recordings longer than a minute's limit are possible, and the average holds.

        Raises:
            RequestError: if nothing is left.
        """
        self.check_audio()
        if self._audio is None:
            yield
            return
        self._audio.take(seconds)
        try:
            yield
        except Exception:
            self._audio.take(-seconds)
            raise

    @property
    def levels(self) -> tuple[float | None, float | None]:
        """What is left: requests and seconds of audio; None where there is no limit."""
        requests, audio = (bucket.left if bucket else None for bucket in (self._requests, self._audio))
        return requests, audio

    def set_levels(self, requests: float | None, audio: float | None) -> None:
        """Set what is left, as another process counted it; None changes nothing."""
        for bucket, level in ((self._requests, requests), (self._audio, audio)):
            if bucket is not None and level is not None:
                bucket.take(bucket.left - level)

    def headers(self) -> Iterator[tuple[str, str]]:
        """Yield the headers about the limits: the limit, what is left, and when the bucket is full again."""
        for name, bucket in (("requests", self._requests), ("audio-seconds", self._audio)):
            if bucket is not None:
                yield f"x-ratelimit-limit-{name}", f"{bucket.limit:g}"
                yield f"x-ratelimit-remaining-{name}", str(max(0, math.floor(bucket.left)))
                yield f"x-ratelimit-reset-{name}", duration(bucket.seconds_until(bucket.limit))


def duration(seconds: float) -> str:
    """Write a time as OpenAI's headers do (`20ms`, `1s`, `6m0s`), rounded up."""
    if seconds < 1:
        milliseconds = math.ceil(1000 * seconds)
        return f"{milliseconds}ms" if 0 < milliseconds < 1000 else f"{milliseconds // 1000}s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else "") + f"{rest}s"


def _refusal(message: str, seconds: float) -> RequestError:
    retry_after = max(1, math.ceil(seconds))
    return RequestError(
        f"{message} Try again in {retry_after} s.",
        code=ErrorCode.RATE_LIMIT_EXCEEDED,
        retry_after=retry_after,
        should_retry=None if retry_after <= _CLIENTS_WAIT else False,
    )
