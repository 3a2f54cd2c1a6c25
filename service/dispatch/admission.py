"""Admission control: two gates, which refuse overload early, because what is accepted must be answered.

Gate 1 comes before the body of an upload is stored, and knows its announced size. Gate 2 knows the decoded length. Both
look at the same backlog: the audio that was accepted and has no transcript yet.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.dispatch.backlog import Backlog, BacklogEntry, RoundRobin
from service.dispatch.counts import Outlook, RequestCounts
from service.dispatch.errors import DrainingError, ModelNotReadyError, OverloadedError

_LOADING_SECONDS = 10.0  # Retry-After while it is not known how long a model takes to load
_MARGIN = 1.1  # for clips that come later, and for errors of the measured RTFx
# Of the requests that may be under way, one key, or one address without a key, may have this part. It is large, because
# behind a proxy all clients may have one address.
_SHARE_OF_CLIENT = 7 / 8
_RETRY_AFTER = (1, 60)  # older clients ignore longer waits, and a shorter wait would have all hammer the service


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of what may be under way at the same time."""

    max_requests: int  # requests that were accepted and are not finished
    max_stored_bytes: int  # bytes of uploads that are being received or decoded
    max_queued_audio_seconds: float  # decoded audio without a transcript, in memory or on disk
    max_wait_seconds: float  # the predicted wait of a new recording
    timeout_seconds: float  # how long a recording may take in addition to its own length; a job may take any time
    takes_jobs: bool = False  # whether clients may send jobs instead


class Permit:
    """Admission of one request by gate 1; counts the bytes of its upload."""

    def __init__(self, gate: "Gate") -> None:
        self._gate = gate
        self.stored_bytes = 0

    def store(self, size: int) -> None:
        """Count bytes of the upload as they arrive.

        Raises:
            OverloadedError: if the uploads under way together are over their limit.
        """
        self.stored_bytes += size
        self._gate.counts.stored_bytes.add(size)
        self._gate.check_bytes(self.stored_bytes, self._gate.stored_bytes - self.stored_bytes)

    def free(self) -> None:
        """Stop counting the bytes of the upload, because it is decoded."""
        self._gate.counts.stored_bytes.add(-self.stored_bytes)
        self.stored_bytes = 0


class Gate:
    """Gate 1: admits requests before their bodies are stored."""

    def __init__(self, limits: AdmissionLimits, outlook: Callable[[], Outlook], counts: RequestCounts) -> None:
        self.limits = limits
        self.counts = counts
        self._outlook = outlook
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def requests(self) -> int:
        """Number of requests that were accepted and are not finished."""
        return self.counts.requests.total

    @property
    def stored_bytes(self) -> int:
        """Bytes of uploads that are being received or decoded."""
        return self.counts.stored_bytes.total

    async def until_idle(self) -> None:
        """Wait until no request of this process is under way."""
        await self._idle.wait()

    @property
    def retry_after(self) -> int:
        """Seconds that a refused client should wait: the predicted wait, within the range that clients obey."""
        return _retry_after(self._outlook().predicted_wait)

    def check(self, announced_bytes: int, *, is_background: bool = False) -> None:
        """Gate 1: refuse a request of this length (0: not announced), or do nothing; a job's may wait longer.

        Raises:
            DrainingError: while the service shuts down.
            ModelNotReadyError: before the first engine is ready.
            OverloadedError: when too much is under way.
        """
        outlook = self._outlook()
        if outlook.is_draining:
            raise DrainingError("The service is shutting down.", retry_after=1)
        if not outlook.is_loaded:
            raise self.still_loading()
        self.check_bytes(announced_bytes, self.stored_bytes)
        if self.requests >= self.limits.max_requests:
            raise self._overloaded(f"{self.requests} requests are under way")
        if not is_background:
            self._check_audio(outlook, 0.0)

    @contextmanager
    def enter(self, announced_bytes: int, client: str = "", *, is_background: bool = False) -> Iterator[Permit]:
        """Gate 1: admit one request that passes `check`, and count it until it is finished.

        A client, which is a key, or the network of an address without one, may have only a share of the requests.

        Raises:
            RefusedError: as `check`.
        """
        self.check(announced_bytes, is_background=is_background)
        if client and self.counts.requests.of(client) >= math.ceil(_SHARE_OF_CLIENT * self.limits.max_requests):
            raise self._overloaded(f"{self.counts.requests.of(client)} requests of this key or address are under way")
        permit = Permit(self)
        self.counts.requests.add(1, client)
        self._idle.clear()
        try:
            yield permit
        finally:
            self.counts.requests.add(-1, client)
            if not self.counts.requests.own:
                self._idle.set()
            permit.free()

    def check_bytes(self, own: int, others: int) -> None:
        """Check the limit on bytes of uploads, for an upload and what is stored of the others.

        Raises:
            OverloadedError: if together they exceed it.
        """
        # A single upload has a limit of its own, and an idle service must accept it.
        if others and own + others > self.limits.max_stored_bytes:
            raise self._overloaded(f"{self.stored_bytes} bytes of uploads are under way")

    def _check_audio(self, outlook: Outlook, seconds: float) -> None:
        wait, backlog = outlook.predicted_wait, outlook.waiting_seconds
        if backlog and backlog + seconds > self.limits.max_queued_audio_seconds:
            raise self._overloaded(f"{backlog:.0f} s of audio are waiting")
        if wait > self.limits.max_wait_seconds:
            raise self._overloaded(f"the predicted wait is {wait:.0f} s")

    def still_loading(self) -> ModelNotReadyError:
        """Return the error for a request whose model is still loading."""
        return ModelNotReadyError("The model is still loading.", _retry_after(self._outlook().loading_seconds))

    def _overloaded(self, why: str, retry_after: int | None = None) -> OverloadedError:
        return OverloadedError(f"The service is overloaded: {why}.", retry_after or self.retry_after)


class Admission(Gate):
    """Both gates: decides what is accepted, and keeps the figures for that.

    Args:
        turn_seconds: audio of a turn. Of a longer recording, only one turn counts in the wait of others.
    """

    def __init__(
        self,
        limits: AdmissionLimits,
        turn_seconds: float,
        counts: RequestCounts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(limits, self.outlook, counts or RequestCounts())
        self.backlog = Backlog(turn_seconds)  # the decoded audio without a transcript
        self._turn_seconds = turn_seconds
        self._clock = clock
        self.rtfx: dict[str, float] = {}  # audio-seconds per second of all engines together, by model id
        self.is_loaded = False  # whether an engine has been ready; also when all models are unloaded
        self.is_draining = False  # whether new requests are refused, because the service shuts down
        self.loading_seconds = _LOADING_SECONDS  # how long a model takes to load, as far as known

    def outlook(self) -> Outlook:
        """Return what gate 1 needs to know."""
        return Outlook(
            self.predicted_wait, self.backlog.seconds, self.loading_seconds, self.is_loaded, self.is_draining
        )

    @property
    def predicted_wait(self) -> float:
        """Seconds until a recording accepted now would have its turn, after one turn of each recording before it."""
        turns = self.backlog.turns.items()
        return sum(seconds / self.rtfx[model] for model, seconds in turns if model in self.rtfx)

    @contextmanager
    def accept(self, model: str, seconds: float, *, is_background: bool = False) -> Iterator[BacklogEntry]:
        """Gate 2: count the audio of one recording until it is answered; a job's, whose number `Jobs` limits, may wait.

        Raises:
            OverloadedError: if it would wait too long, or exceed the limit on queued audio, or if it or another would
                not be done in time.
        """
        deadline = math.inf
        if not is_background:
            self._check_audio(self.outlook(), seconds)
            deadline = self._deadline(model, seconds)
        accepted = self.backlog.add(model, seconds, is_background=is_background)
        accepted.deadline = deadline
        try:
            yield accepted
        finally:
            self.backlog.remove(accepted)

    def _deadline(self, model: str, seconds: float) -> float:
        """Return the deadline of a recording, if it will be done by then, and if each that is in time stays so.

        Recordings take turns, and shorter ones lead, so of each other one, no more audio goes before than its own
        length. All of the backlog would be too much to count: behind an hour, a minute would be refused. A turn of
        each would be too little: hours would be accepted that end together, and too late.

        Raises:
            OverloadedError: if one of them would be late.
        """
        rtfx, now = self.rtfx.get(model), self._clock()
        may_take = self.limits.timeout_seconds + seconds
        # A clip waits for a turn of each at most, and makes no difference to the others.
        is_clip = seconds <= self._turn_seconds
        if rtfx is None or (is_clip and self.predicted_wait + seconds / rtfx <= may_take):
            return now + may_take
        others = [entry for entry in self.backlog.entries if not entry.is_background and entry.model in self.rtfx]
        if not others:  # an idle service accepts it, because the measured RTFx may be wrong
            return now + may_take
        waiting = [(entry.unanswered_seconds, self.rtfx[entry.model]) for entry in others]
        before, after = RoundRobin(waiting), RoundRobin([*waiting, (seconds, rtfx)])
        instead = "; a job may take longer" if self.limits.takes_jobs else ""
        if (takes := _MARGIN * after.seconds(seconds)) > may_take:
            why = f"this recording would take {takes:.0f} s, and may take {may_take:.0f} s{instead}"
            raise self._overloaded(why, _retry_after(takes - may_take))
        for other in others:
            left = other.deadline - now
            if before.seconds(other.seconds) <= left < (takes := _MARGIN * after.seconds(other.seconds)):
                why = f"beside this recording, others would not be done in time{instead}"
                raise self._overloaded(why, _retry_after(takes - left))
        return now + may_take


def _retry_after(seconds: float) -> int:
    low, high = _RETRY_AFTER
    return min(max(math.ceil(seconds), low), high)
