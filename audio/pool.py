"""Decode untrusted files: NumPy and libsndfile read in the calling thread, FFmpeg in confined child processes.

A hostile file may crash, hang or bloat its child; only that file fails. A child may also die of something else, such
as a lack of memory, so a file fails only after a second child died while decoding it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Self

from audio.child_process import ChildDiedError, ChildLostError, ChildProcess, ChildStartError, Confinement
from audio.decode import Origin, Sink, container_of, decode_by, decode_into
from audio.descriptor import descriptor_of
from audio.errors import InvalidAudioError
from audio.limits import AudioLimits
from audio.raw import RawFormat
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
        on_loss: called when a child is lost: it died while decoding, took too long, or answered nonsense.
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

    def decode_into(
        self,
        sink: Sink,
        file: BinaryIO,
        *,
        rate: int,
        limits: AudioLimits,
        raw: RawFormat | None = None,
        by_channel: bool = False,
    ) -> Origin:
        """Decode as ``audio.decode.decode_into`` does, but safely for untrusted files.

        Args:
            sink: gets the blocks, in this thread; see ``audio.decode.decode_into``.
            file: a seekable binary file.
            rate: samples per second of the blocks.
            limits: what is accepted.
            raw: for a file of 16-bit PCM without a header, its format.
            by_channel: keep the channels apart; otherwise they are mixed, as channel 0.

        Raises:
            AudioError: as ``audio.decode.decode_into``; InvalidAudioError also where decoding takes too much time or
                memory.
            NoChildError: if the pool is closed, or no child can be started.
        """
        if raw is not None:
            return decode_into(sink, file, rate=rate, limits=limits, raw=raw, by_channel=by_channel)
        container = container_of(file)
        if (reader := reader_of(file, container)) is not Reader.FFMPEG:
            return decode_by(reader, sink, file, container, rate=rate, limits=limits, by_channel=by_channel)
        with descriptor_of(file) as descriptor:
            resumed = _Resumed(sink)

            def decode(child: ChildProcess) -> Origin:
                return child.decode_into(resumed, descriptor, rate=rate, limits=limits, by_channel=by_channel)

            try:
                return self._in_child(decode, is_new=False)
            except ChildDiedError:
                self._on_loss()
            try:
                resumed.begin_again()
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


class _Resumed:
    """When a file is decoded again, passes on only the samples that were not passed on the first time."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._passed: Counter[int] = Counter()  # bytes, by channel
        self._seen: Counter[int] = Counter()

    def begin_again(self) -> None:
        """Start over at the first byte."""
        self._seen.clear()

    def __call__(self, samples: bytes | memoryview, channel: int) -> None:
        """Pass on the next block of a channel."""
        known = min(max(self._passed[channel] - self._seen[channel], 0), len(samples))
        self._seen[channel] += len(samples)
        if known < len(samples):
            self._sink(samples[known:], channel)
            self._passed[channel] = self._seen[channel]
