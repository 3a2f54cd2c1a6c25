"""Decode untrusted files: libsndfile reads in the calling thread, FFmpeg in confined child processes.

A hostile file may crash, hang or bloat its child; only that file fails. A child may also die of something else, such
as a lack of memory, so a file fails only after a second child died while decoding it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Self

from audio.child_process import ChildDiedError, ChildLostError, ChildProcess, ChildStartError, Confinement
from audio.decode import Audio, Origin, Take, audio_of, container_of, decode_by, decode_into
from audio.descriptor import descriptor_of
from audio.errors import InvalidAudioError
from audio.limits import AudioLimits
from audio.raw import RawForm
from audio.reader import Reader, reader_of

_STARTS = 3  # attempts to start a child for one file, before NoChildError


class NoChildError(Exception):
    """No child can be started, which is not the fault of the file; the message says why."""


class DecodePool:
    """Decodes in any number of threads at once. Close it, or use it as a context.

    The pool has as many children as threads ever needed one at the same time. A child starts when it is needed, stays
    for later files, and is replaced after ``confinement.files`` of them, because native libraries leak.

    Args:
        confinement: limits of a child.
        on_loss: called when a child died while decoding, or was killed.
    """

    def __init__(self, confinement: Confinement | None = None, on_loss: Callable[[], None] = lambda: None) -> None:
        self._confinement = confinement or Confinement()
        self._on_loss = on_loss
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._children: set[ChildProcess] = set()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(self, file: BinaryIO, *, rate: int, limits: AudioLimits) -> Audio:
        """Decode as ``audio.decode.decode`` does, but safely for untrusted files.

        Raises:
            AudioError: as ``audio.decode.decode``; InvalidAudioError also where decoding takes too much time or memory.
            NoChildError: if the pool is closed, or no child can be started.
        """
        samples = bytearray()
        origin = self.decode_into(lambda block, _: samples.extend(block), file, rate=rate, limits=limits)
        return audio_of(samples, rate, origin)

    def decode_into(
        self,
        take: Take,
        file: BinaryIO,
        *,
        rate: int,
        limits: AudioLimits,
        raw: RawForm | None = None,
        by_channel: bool = False,
    ) -> Origin:
        """Decode as ``decode`` does, but pass the samples to ``take`` block by block, as the bytes of float32.

        Args:
            take: gets the blocks, in this thread; see ``audio.decode.decode_into``.
            file: a seekable binary file.
            rate: samples per second of the blocks.
            limits: what is accepted.
            raw: for a file of 16-bit PCM without a header, its form.
            by_channel: keep the channels apart; otherwise they are mixed, as channel 0.

        Raises:
            AudioError: as ``decode``, perhaps after some blocks.
            NoChildError: if the pool is closed, or no child can be started.
        """
        if raw is not None:
            return decode_into(take, file, rate=rate, limits=limits, raw=raw, by_channel=by_channel)
        container = container_of(file)
        if (reader := reader_of(file, container)) is not Reader.FFMPEG:
            return decode_by(reader, take, file, container, rate=rate, limits=limits, by_channel=by_channel)
        with descriptor_of(file) as descriptor:
            untaken = _Untaken(take)

            def decode(child: ChildProcess) -> Origin:
                return child.decode_into(untaken, descriptor, rate=rate, limits=limits, by_channel=by_channel)

            try:
                return self._in_child(decode, is_new=False)
            except ChildDiedError:
                self._on_loss()
            try:
                untaken.begin_again()
                return self._in_child(decode, is_new=True)
            except ChildDiedError as death:
                self._on_loss()
                raise InvalidAudioError(f"the file cannot be decoded: {death}") from None

    def _in_child(self, decode: Callable[[ChildProcess], Origin], *, is_new: bool) -> Origin:
        for attempt in range(_STARTS):
            try:
                with self._child(is_new=is_new or attempt > 0) as child:
                    return decode(child)
            except ChildStartError as error:
                failure = error
            except ChildDiedError:
                raise
            except ChildLostError as loss:
                self._on_loss()
                raise InvalidAudioError(f"the file cannot be decoded: {loss}") from None
        raise NoChildError(str(failure)) from failure

    def close(self) -> None:
        """End all children. Files that they are decoding fail."""
        with self._lock:
            self._is_closed = True
            idle, busy = tuple(self._idle), self._children.difference(self._idle)
        for child in idle:
            self._end(child)
        for child in busy:
            child.kill()

    @contextmanager
    def _child(self, *, is_new: bool) -> Iterator[ChildProcess]:
        child = self._take(is_new=is_new)
        try:
            yield child
        finally:
            with self._lock:
                if keep := child.is_usable and not self._is_closed:
                    self._idle.append(child)
            if not keep:
                self._end(child)

    def _take(self, *, is_new: bool) -> ChildProcess:
        """Return an idle child, or a new one; idle children that died are removed."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise NoChildError("the pool is closed")
                if is_new or not self._idle:
                    child = ChildProcess(self._confinement)
                    self._children.add(child)
                    return child
                child = self._idle.pop()
            if child.is_usable:
                return child
            self._end(child)

    def _end(self, child: ChildProcess) -> None:
        child.close()
        with self._lock:
            self._children.discard(child)


class _Untaken:
    """When a file is decoded again, passes on only the samples that were not passed on the first time."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._taken: Counter[int] = Counter()  # bytes, by channel
        self._seen: Counter[int] = Counter()

    def begin_again(self) -> None:
        """Start over at the first byte."""
        self._seen.clear()

    def __call__(self, samples: bytes | memoryview, channel: int) -> None:
        """Take the next block of a channel."""
        known = min(max(self._taken[channel] - self._seen[channel], 0), len(samples))
        self._seen[channel] += len(samples)
        if known < len(samples):
            self._take(samples[known:], channel)
            self._taken[channel] = self._seen[channel]
