"""The transcribed parts of a request, the first of which is awaited before the answer begins."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from service.http.telemetry import Record


class PartAnswer(Protocol):
    """The answer for a part of a recording."""

    @property
    def queue_seconds(self) -> float:
        """Seconds that the part waited for a batch."""

    @property
    def identify_seconds(self) -> float:
        """Seconds that it took to identify its language."""


P = TypeVar("P", bound=PartAnswer)


@dataclass(frozen=True, slots=True)
class Parts(Generic[P]):
    """The parts of a request in order; iterate once."""

    _record: Record
    _began: float  # monotonic
    _first: "asyncio.Future[P | None]"
    _rest: AsyncGenerator[P, None]

    @classmethod
    async def begin(cls, parts: AsyncGenerator[P, None], record: Record, patience: float | None = None) -> "Parts[P]":
        """Wait for the first part, so that a failure until then is answered with an error's status.

        After `patience` seconds a stream begins without it, so that no proxy closes the connection; later failures are
        events of the stream.

        Raises:
            DispatchError: if the part gets no transcript.
        """
        began = time.monotonic()
        first: asyncio.Future[P | None]
        if patience is None:  # a task of its own costs time, and is not needed
            first = asyncio.get_running_loop().create_future()
        else:
            first = asyncio.ensure_future(_first(parts, record, began))
        begun = cls(record, began, first, parts)
        try:
            if patience is None:
                first.set_result(await _first(parts, record, began))
            else:
                done, _ = await asyncio.wait({first}, timeout=patience)
                if done:
                    first.result()
        except BaseException:
            await begun.aclose()
            raise
        return begun

    async def __aiter__(self) -> AsyncIterator[P]:
        """Yield the parts."""
        if (first := await self._first) is not None:
            yield first
        async for part in self._rest:
            yield part

    async def aclose(self) -> None:
        """Drop the parts that are under way."""
        self._first.cancel()
        if not self._first.done():
            await asyncio.gather(self._first, return_exceptions=True)
        elif not self._first.cancelled():
            self._first.exception()  # otherwise asyncio logs one that was not retrieved
        await self._rest.aclose()

    def note_end(self) -> None:
        """Record the seconds since the first part got its batch."""
        stages = self._record.stages
        stages["infer"] = time.monotonic() - self._began - stages["queue"] - stages.get("identify", 0.0)


async def _first(parts: AsyncGenerator[P, None], record: Record, began: float) -> P | None:
    first = await anext(parts, None)
    # Of a request that began before its upload had ended, the first part may have waited then.
    waited = time.monotonic() - began
    identified = min(waited, first.identify_seconds) if first else 0.0
    if identified:
        record.stages["identify"] = identified
    record.stages["queue"] = min(waited - identified, first.queue_seconds) if first else 0.0
    return first
