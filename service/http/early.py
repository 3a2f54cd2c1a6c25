"""Transcribing the beginning of a long upload while the rest of it arrives.

What has arrived is decoded as a file that ends early: from its start, each time when enough more has arrived
(`audio.growing`). Once it is longer than an utterance, its parts are transcribed. The answer still begins when the body
has ended: its status depends on the whole file, and many clients and proxies read no answer before they have sent
everything.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile

from audio.descriptor import opened_again
from audio.errors import AudioError, AudioTooLongError
from audio.growing import BeginningChangedError, Decoding, GrowingRecording
from audio.origin import Origin
from audio.pool import NoChildError
from audio.recording import Recording, StorageFullError
from service.dispatch.backlog import BacklogEntry
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import RefusedError
from service.dispatch.growth import Growth
from service.http.decoding import decode, decode_in_thread
from service.http.errors import RequestError
from service.http.front import Front
from service.http.pump import Pump
from service.http.reply import TranscriptionOptions
from service.http.telemetry import Record
from service.http.transcribing import answers, cut

log = logging.getLogger("steno.http")

# Uploads that take no longer, or have fewer bytes, are decoded once.
_BRIEF_SECONDS = 1.0
_LEAST_BYTES = 1 << 17
# What has arrived is decoded again when an eighth more has arrived, which in all takes at most nine times as long as to
# decode it once; and a pause of nine times its own length follows each decoding.
_GROWTH = 1 / 8
_REST = 9

Parse = Callable[[FormData, AsyncExitStack], Awaitable[TranscriptionOptions]]


@dataclass(frozen=True, slots=True)
class _Started:
    """A transcription that began before its upload had ended."""

    growth: Growth
    cut_recording: CutRecording
    accepted: BacklogEntry
    pump: Pump[Answer]


@dataclass(frozen=True, slots=True)
class Begun:
    """A decoded recording, whose transcription began before its upload had ended.

    Attributes:
        origin: the file that it was decoded from.
        cut_recording: the recording.
        answers: the answers of its parts.
    """

    origin: Origin
    cut_recording: CutRecording
    answers: AsyncGenerator[Answer, None]


class EarlyStart:
    """The early start of one request; an `Arrival` (service/http/upload.py).

    In a process, the beginning of one upload is decoded at a time, and the others wait: so slow uploads, however many,
    take one of the threads that decode, and never for longer than decoding takes.

    Args:
        front: the service.
        record: the request.
        parse: parses its form, and has its model held by resources.
    """

    def __init__(self, front: Front, record: Record, parse: Parse) -> None:
        self._front = front
        self._record = record
        self._parse = parse
        self._held = AsyncExitStack()  # the model of the options
        self._resources = AsyncExitStack()  # what is under way
        self._form: FormData | None = None
        self._is_over = False  # whether no more is decoded early
        self._options: TranscriptionOptions | None = None
        self._growing: GrowingRecording | None = None
        self._started: _Started | None = None
        self._work: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._may_be_cancelled = False
        self._too_long: AudioTooLongError | None = None
        self._next_bytes = _LEAST_BYTES
        self._next_time = 0.0

    # While the upload arrives.

    def begin(self, form: FormData) -> None:
        """Take the fields that came before the recording, and its file."""
        self._form = form
        self._next_time = asyncio.get_running_loop().time() + _BRIEF_SECONDS

    def arrived(self) -> None:
        """Decode what is stored of the recording, if it is time to.

        Raises:
            AudioTooLongError: if it is too long already.
            OSError: if the disk is full.
        """
        if self._too_long is not None:
            raise self._too_long
        self._look()

    def _look(self) -> None:
        if (
            self._form is None
            or self._is_over
            or self._front.recordings is None
            or (self._work is not None and not self._work.done())
        ):
            return
        file = _file(self._form)
        size = file.size or 0
        if size < self._next_bytes or asyncio.get_running_loop().time() < self._next_time or file.file.closed:
            return
        file.file.fileno()  # moves it to the disk; the first call comes from `arrived`, so no thread is writing it
        self._next_bytes = round(size * (1 + _GROWTH))
        self._work = asyncio.create_task(self._advance(self._form))

    async def _advance(self, form: FormData) -> None:
        try:
            if self._options is None:
                self._options = await self._parse(form, self._held)
                self._is_over |= self._must_be_whole(self._options)
            if not self._is_over:
                await self._decode(self._options)
                await self._go_on(self._options)
        except AudioTooLongError as error:
            self._too_long, self._is_over = error, True
        except (AudioError, RefusedError, NoChildError, StorageFullError, OSError):
            pass  # it may succeed when more has arrived or there is room; else the request fails at its end
        except (RequestError, BeginningChangedError):
            self._is_over = True
        except Exception:
            self._is_over = True
            log.exception("early start failed", extra={"request_id": self._record.request_id})
        finally:
            self._timer = asyncio.get_running_loop().call_at(self._next_time, self._look)

    def _must_be_whole(self, options: TranscriptionOptions) -> bool:
        """Whether the whole file must be there: to tell which channels are silent, or for a limit on its seconds."""
        allowance = self._record.allowance
        has_limit = allowance is not None and allowance.limits.audio_seconds_per_minute is not None
        return options.fields.multichannel or has_limit

    async def _decode(self, options: TranscriptionOptions) -> None:
        """Decode what is stored."""
        fields = options.fields
        if self._growing is None:
            longest = self._front.settings.max_utterance_seconds
            recording = self._resources.enter_context(Recording(options.model.ready.sample_rate, longest))
            self._growing = GrowingRecording(recording)
        decoding, rate = Decoding(self._growing, is_whole=False), self._growing.recording.rate
        self._may_be_cancelled = True
        try:
            async with self._front.early_decoding:
                if self._is_over or fields.file.file.closed:  # the upload may have ended
                    return
                stored = opened_again(fields.file.file)
                if stored is None:
                    return
                with stored, self._timed():
                    origin = await decode_in_thread(self._front, fields, stored, decoding, rate, lambda: True)
        finally:
            self._may_be_cancelled = False
        decoding.finish(origin.channels)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Have a pause follow, in proportion to the time that this takes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            self._next_time = loop.time() + _REST * (loop.time() - began)

    async def _go_on(self, options: TranscriptionOptions) -> None:
        """Have what was decoded transcribed.

        Raises:
            OverloadedError: if gate 2 has no room for it now.
        """
        if self._started is not None:
            await self._grow(self._started)
            return
        assert self._growing is not None
        recording = self._growing.recording
        if recording.seconds > self._front.settings.max_utterance_seconds:
            growth = Growth(len(recording))
            cut_recording = cut(self._front, options, recording, growth)
            place = AsyncExitStack()
            assert self._front.recordings is not None
            accepted = place.enter_context(self._front.recordings.accept(recording.seconds, options.lane))
            self._resources.push_async_callback(place.aclose)
            parts = answers(self._front, self._record, options, cut_recording, accepted=accepted)
            pump = Pump(_within(place, parts))
            self._resources.push_async_callback(pump.aclose)
            self._started = _Started(growth, cut_recording, accepted, pump)

    async def _grow(self, started: _Started) -> None:
        recording, growth = started.cut_recording.recording, started.growth
        if not started.pump.has_ended:
            assert self._front.recordings is not None
            self._front.recordings.grow(started.accepted, (len(recording) - growth.samples) / recording.rate)
            growth.grow(len(recording))

    # When it has arrived.

    async def options_of(self, form: FormData) -> TranscriptionOptions | None:
        """Return the options if they are known already; None if not, or if the form has other fields now."""
        await self._stop()
        if self._form is not None and _fields(form) == _fields(self._form):
            return self._options
        await self.aclose()
        return None

    async def finish(self) -> Begun | None:
        """Decode the whole file; return None if the request has to begin now.

        Raises:
            AudioError: if the file cannot be decoded.
            RefusedError: if there is no room for it.
        """
        started, options, growing = self._started, self._options, self._growing
        if started is None or options is None or growing is None:
            return None
        last = Decoding(growing, is_whole=True)
        try:
            origin = await decode(self._front, options.fields, growing.recording, last)
            last.finish(origin.channels)
        except BeginningChangedError:
            await self._drop()
            return None
        await self._grow(started)
        started.growth.end()
        return Begun(origin, started.cut_recording, started.pump.items())

    async def aclose(self) -> None:
        """Drop what is under way, and release the model."""
        await self._drop()
        await self._held.aclose()

    async def _drop(self) -> None:
        self._started = None
        await self._stop()
        await self._resources.aclose()

    async def _stop(self) -> None:
        self._is_over = True
        if self._work is not None:
            if self._may_be_cancelled:
                self._work.cancel()
            await asyncio.wait({self._work})
        if self._timer is not None:
            self._timer.cancel()


async def _within(place: AsyncExitStack, parts: AsyncGenerator[Answer, None]) -> AsyncGenerator[Answer, None]:
    """Yield answers, and give up the place in the queue after the last one."""
    async with place, aclosing(parts):
        async for part in parts:
            yield part


def _file(form: FormData) -> UploadFile:
    file = form["file"]
    assert isinstance(file, UploadFile)
    return file


def _fields(form: FormData) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in form.multi_items() if name != "file"]
