"""Decode untrusted files: 16-bit PCM in the calling thread, all else in confined child processes.

A hostile file may crash, hang or bloat its child, or run code in it; only that file fails. A child may also die of
something else, such as a lack of memory, so a file fails only after a second child died while decoding it.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO, Self

from audio.child_process import ChildDiedError, ChildLostError, ChildProcess, ChildStartError, Confinement
from audio.errors import DecoderCrashedError, InvalidAudioError
from audio.fatal_files import FatalFiles
from audio.joined import begins
from audio.origin import Origin, Sink, Wanted, drain
from audio.pcm import RAW, PcmSource, RawFormat
from audio.riff import read_header
from audio.sniff import container_of

_STARTS = 3  # attempts to start a child for one file, before NoChildError
# A child that refused a file makes way for a new one, but not more often: to start one takes 0.2 s of a core.
_REPLACE_SECONDS = 1.0


class NoChildError(Exception):
    """No child can be started, which is not the fault of the file; the message says why."""


class DecodePool:
    """Decodes in any number of threads at once. Close it, or use it as a context.

    A child starts when it is needed, stays for later files, and is replaced after ``confinement.files`` of them,
    because native libraries leak; after a loss; and after a refusal.

    Args:
        confinement: limits of a child.
        most: children at once; their memory together is as many times that of one. More threads wait for each other.
        keeps_spare: whether a child is kept ready for a sudden need, and to replace one that is lost.
        in_thread: called in the thread that starts spares, which inherit its priority.
        on_loss: called when a child is lost: it died while decoding, took too long, or answered nonsense.
        on_start: called when a child is ready, with the layers of its confinement that do not hold.
    """

    def __init__(
        self,
        confinement: Confinement | None = None,
        *,
        most: int = 8,
        keeps_spare: bool = False,
        in_thread: Callable[[], object] = lambda: None,
        on_loss: Callable[[], None] = lambda: None,
        on_start: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        self._confinement = confinement
        self._most = most
        self._keeps_spare = keeps_spare
        self._on_loss = on_loss
        self._on_start = on_start
        self._fatal_files = FatalFiles()
        self._changed = threading.Condition()
        self._idle: list[ChildProcess] = []
        self._children: set[ChildProcess] = set()
        self._coming = 0  # children for which there is room, and no process yet
        self._is_closed = False
        self._background = ThreadPoolExecutor(1, "decoders", in_thread)  # starts spares, and ends children
        self._replaced = -_REPLACE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode_into(self, sink: Sink, file: BinaryIO, wanted: Wanted, raw: RawFormat | None = None) -> Origin:
        """Decode an untrusted file to samples at one rate, up to where it ends early or is damaged.

        The file is seekable, and the sink called in this thread; see ``audio.decode.decode_into``.

        Raises:
            AudioError: as ``decode_into``; InvalidAudioError also if decoding takes too much time or memory, and
                DecoderCrashedError if two children died of it.
            NoChildError: if the pool is closed, or no child can be started.
        """
        if raw is not None:
            return drain(PcmSource.raw(file, raw, wanted.limits), sink, RAW, wanted)
        container = container_of(file)
        header = read_header(file) if container == "wav" else None
        if header and header.pcm and not (header.is_followed and len(begins(file, container)) > 1):
            origin = drain(PcmSource(file, header.pcm, wanted.limits), sink, container, wanted)
            return replace(origin, truncated=header.is_followed)
        self._fatal_files.check(file)
        resumed = _Resumed(sink)
        try:
            try:
                return self._in_child(resumed, file, container, wanted, is_new=False)
            except ChildDiedError:
                self._on_loss()
            resumed.begin_again()
            return self._in_child(resumed, file, container, wanted, is_new=True)
        except ChildLostError as loss:
            self._on_loss()
            if self._is_closed:
                raise NoChildError("the pool is closed") from None
            is_second = isinstance(loss, ChildDiedError)
            error = (DecoderCrashedError if is_second else InvalidAudioError)(f"the file cannot be decoded: {loss}")
            self._fatal_files.note(file, 1 + is_second, error)
            raise error from None

    def prepare(self) -> None:
        """Start the spare child, if there is none."""
        with self._changed:
            if not self._is_closed:
                self._background.submit(self._start_spare)

    def close(self) -> None:
        """End all children. Files that they are decoding fail."""
        with self._changed:
            self._is_closed = True
            for child in self._children:
                child.kill()
            while self._idle:
                self._dismiss(self._idle.pop())
            self._changed.notify_all()
        self._background.shutdown()

    def _in_child(self, sink: Sink, file: BinaryIO, container: str, wanted: Wanted, *, is_new: bool) -> Origin:
        for attempt in range(_STARTS):
            try:
                child = self._take(is_new=is_new or attempt > 0)
                try:
                    return child.decode_into(sink, file, container, wanted)
                finally:
                    self._give_back(child)
            except ChildStartError as error:
                failure = error
        raise NoChildError(str(failure)) from failure

    def _take(self, *, is_new: bool) -> ChildProcess:
        """Return an idle child, or a new one, when there is room for it."""
        with self._changed:
            child = self._waited_for(is_new=is_new)
            if self._keeps_spare and not self._idle and self._has_room:
                self.prepare()
        return child or self._started()

    def _waited_for(self, *, is_new: bool) -> ChildProcess | None:
        """Wait for an idle child, and take it; or for room for a new one, and return None."""
        while True:
            if self._is_closed:
                raise NoChildError("the pool is closed")
            found = next((child for child in reversed(self._idle) if child.is_new or not is_new), None)
            if found is not None:
                self._idle.remove(found)
                return found
            if not self._has_room and self._idle:  # a used one makes room
                self._dismiss(self._idle.pop(0))
            if self._has_room:
                self._coming += 1
                return None
            self._changed.wait()

    @property
    def _has_room(self) -> bool:
        return len(self._children) + self._coming < self._most

    def _started(self) -> ChildProcess:
        """Start a child, for which there is room."""
        child = None
        try:
            child = ChildProcess(self._confinement)
        finally:
            with self._changed:
                self._coming -= 1
                if child is not None:
                    self._children.add(child)  # before it is ready, so that `close` does not wait for that
                    if self._is_closed:
                        child.kill()
                self._changed.notify_all()
        try:
            child.wait_until_ready()
        except ChildStartError:
            with self._changed:
                self._children.discard(child)
                self._changed.notify_all()
            raise
        self._on_start(child.unconfined)
        return child

    def _start_spare(self) -> None:
        with self._changed:
            if self._is_closed or self._idle or not self._has_room:
                return
            self._coming += 1
        try:
            child = self._started()
        except ChildStartError:  # who needs one finds out why
            return
        self._give_back(child)

    def _give_back(self, child: ChildProcess) -> None:
        with self._changed:
            keep = child.is_usable and not self._is_closed
            if keep and child.has_refused and self._idle and time.monotonic() - self._replaced >= _REPLACE_SECONDS:
                self._replaced = time.monotonic()
                keep = False
            if keep:
                self._idle.append(child)
                self._changed.notify_all()
            elif self._is_closed:
                child.close()
            else:
                self._dismiss(child)
                if self._keeps_spare and not self._idle:
                    self.prepare()

    def _dismiss(self, child: ChildProcess) -> None:
        """Kill a child now, and clear up behind it in the background."""
        child.kill()
        self._children.discard(child)
        self._changed.notify_all()
        self._background.submit(child.close)


class _Resumed:
    """When a file is decoded again, passes on only the samples that were not passed on the first time."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._passed: defaultdict[int, int] = defaultdict(int)  # bytes, by channel
        self._seen: defaultdict[int, int] = defaultdict(int)

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


def confinement_here() -> tuple[str, ...]:
    """Start a child, and return which layers of its confinement do not hold on this machine.

    Raises:
        ChildStartError: if none can be started.
    """
    child = ChildProcess()
    child.wait_until_ready()
    child.close()
    return child.unconfined
