"""What a recording needs of the queue: gate 2, room for its parts, and their transcripts.

`LocalQueue` calls the dispatcher of this process. Workers have no dispatcher, and send messages to that of the main
process (service/workers/remote.py).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from models.spoken_language import Probabilities
from service.dispatch.backlog import BacklogEntry
from service.dispatch.dispatcher import Answer, Dispatcher
from service.dispatch.utterance import Part


class PartWindow(Protocol):
    """The limit on the parts of long recordings that are in memory; see `Window`."""

    def acquire(self, samples: int) -> asyncio.Future[None]:
        """Ask for room, which `release` gives back; the future is done when there is room, perhaps at once."""

    def release(self, room: asyncio.Future[None]) -> None:
        """Give back room, granted or not."""


class AcceptedRecording(Protocol):
    """A recording that gate 2 accepted; if it is single (`Queue.accept`), `transcribe` may be where it decides."""

    @property
    def window(self) -> PartWindow:
        """Where its parts ask for room, if it is long."""

    async def grow(self, seconds: float) -> None:
        """Count more audio of a recording that is still arriving.

        Raises:
            OverloadedError: if it would exceed the limit on queued audio, or a recording would not be done in time.
        """

    async def transcribe(self, part: Part) -> Answer:
        """Transcribe a part. Cancelling the call drops it.

        Raises:
            OverloadedError: at gate 2, if the recording is single.
            DispatchError: if it gets no transcript; see `Dispatcher.transcribe`.
        """

    async def identify(self, part: Part) -> Probabilities:
        """Return the probability of each language in a part, whose lane is the language identifier's.

        Raises:
            DispatchError: if it is not identified; see `Dispatcher.identify`.
        """


class Queue(Protocol):
    """The queue of the service."""

    def accept(
        self, model: str, seconds: float, *, is_single: bool, is_background: bool
    ) -> AbstractAsyncContextManager[AcceptedRecording]:
        """Gate 2: count the audio of a recording until it is answered.

        Args:
            model: id of the model.
            seconds: length of the recording.
            is_single: whether only one `AcceptedRecording.transcribe` follows, which may then raise the error below.
            is_background: whether it is a job's.

        Raises:
            OverloadedError: if it would wait too long, or exceed the limit on queued audio, or if it or another would
                not be done in time.
        """


class LocalQueue:
    """The queue of the dispatcher in this process."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @asynccontextmanager
    async def accept(
        self,
        model: str,
        seconds: float,
        *,
        is_single: bool,  # noqa: ARG002  # it costs nothing to refuse it at once
        is_background: bool,
    ) -> AsyncIterator[AcceptedRecording]:
        """Gate 2; see `Queue`."""
        with self._dispatcher.admission.accept(model, seconds, is_background=is_background) as entry:
            yield LocalRecording(self._dispatcher, entry)


@dataclass(slots=True)
class LocalRecording:
    """A recording that the dispatcher of this process accepted."""

    dispatcher: Dispatcher
    entry: BacklogEntry

    @property
    def window(self) -> PartWindow:
        """The window for its parts."""
        return self.dispatcher.background_window if self.entry.is_background else self.dispatcher.window

    async def grow(self, seconds: float) -> None:
        """Count more audio; see `AcceptedRecording`."""
        self.grow_now(seconds)

    def grow_now(self, seconds: float) -> None:
        """Count more audio, at once."""
        self.dispatcher.admission.grow(self.entry, seconds)

    async def transcribe(self, part: Part) -> Answer:
        """Transcribe a part; see `AcceptedRecording`."""
        self.entry.unstaged_seconds -= part.share
        answer = await self.dispatcher.transcribe(
            part, is_background=self.entry.is_background, recording_seconds=self.entry.seconds
        )
        self.dispatcher.admission.backlog.answer(self.entry, part.share)
        return answer

    async def identify(self, part: Part) -> Probabilities:
        """Identify the language of a part; see `AcceptedRecording`."""
        return await self.dispatcher.identify(
            part, is_background=self.entry.is_background, recording_seconds=self.entry.seconds
        )
