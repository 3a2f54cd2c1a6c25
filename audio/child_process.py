"""The pool's side of one child process: start it, send it a file, read the answer within bounds, end it."""

import contextlib
import math
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from audio.child_protocol import (
    GO_ON,
    HEADER,
    MOST_BYTES_OF_MESSAGE,
    RING_BYTES,
    Kind,
    length,
    read_message,
    read_origin,
    read_refusal,
    request,
)
from audio.confinement import LAYERS, environment
from audio.descriptor import Copies, read_only, sealed_file
from audio.errors import AudioError
from audio.limits import MOST_CHANNELS, check_numbers
from audio.origin import Origin, Sink, Wanted

_START_SECONDS = 60.0
_OWN_SECONDS = 10  # of processor time, for a child's start
# Bytes that are taken from the ring at a time, so that a copy lies in a core's cache until it is stored; 16 s at
# 16 kHz, so most clips are one block.
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Confinement:
    """Limits of a child process."""

    memory_bytes: int = 1 << 29  # its address space; Python and the libraries take some 220 MB of it
    # Wall time for one file. A child has twice as much processor time for all its files, and is replaced when it has
    # worked so long; so one whose pool was killed ends, too.
    seconds: float = 300.0
    files: int = 4000  # a child is replaced after this number of files

    def children(self, threads: int, memory_bytes: float) -> int:
        """Return how many children may serve ``threads``: all together get a quarter of the memory; at least one."""
        return max(1, min(threads, int(memory_bytes / 4 / self.memory_bytes)))


class ChildLostError(Exception):
    """The child died while it decoded a file, took too long, or answered nonsense; the message says which."""


class ChildDiedError(ChildLostError):
    """The child died, because of the file or of something else."""


class ChildStartError(Exception):
    """The child died before it was given a file, or could not be started."""


class ChildProcess:
    """A process that runs ``audio.child``; one thread at a time may use it.

    Attributes:
        unconfined: which of ``audio.confinement.LAYERS`` do not hold, once it is ready.
        has_refused: whether it refused a file: what its libraries have left behind is unknown.

    Raises:
        ChildStartError: if the system cannot start another process.
    """

    def __init__(self, confinement: Confinement | None = None) -> None:
        self._confinement = confinement = confinement or Confinement()
        self._files = 0
        self._worked = 0.0
        self._is_answering = False
        self.has_refused = False
        self.unconfined: tuple[str, ...] = ()
        arguments = (str(confinement.memory_bytes), str(2 * math.ceil(confinement.seconds) + _OWN_SECONDS))
        with contextlib.ExitStack() as if_it_fails:
            try:
                self._copies = Copies()
                if_it_fails.callback(self._copies.close)
                ours, theirs = socket.socketpair()
                self._connection = if_it_fails.enter_context(ours)
                with theirs:
                    ring = sealed_file(RING_BYTES)
                    try:
                        self._memory = mmap.mmap(ring, RING_BYTES, prot=mmap.PROT_READ)
                        socket.send_fds(self._connection, [GO_ON], [ring, self._copies.reading])
                    finally:
                        os.close(ring)
                    self._process = subprocess.Popen(  # noqa: S603  # nothing in the command comes from outside
                        [sys.executable, "-P", "-m", "audio.child", *arguments],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        env=environment(os.environ),
                        start_new_session=True,
                    )
            except OSError as error:  # no more processes, memory or descriptors
                raise ChildStartError(f"a decoding process cannot be started: {error}") from error
            if_it_fails.pop_all()
        self._bound(confinement.seconds)

    @property
    def is_usable(self) -> bool:
        """Whether the child is idle, and may decode another file."""
        limits = self._confinement
        return not self._is_answering and self._files < limits.files and self._worked < limits.seconds

    @property
    def is_new(self) -> bool:
        """Whether it has decoded no file yet."""
        return self._files == 0

    def wait_until_ready(self) -> None:
        """Wait until it has given up its rights; raise ChildStartError if it did not start."""
        try:
            self._bound(_START_SECONDS)
            _, _, missing = self._message(time.monotonic() + _START_SECONDS)
            self._bound(self._confinement.seconds)
        except (OSError, ValueError) as error:
            self.close()
            raise ChildStartError(f"a decoding process does not start; it ended with {self._process.poll()}") from error
        self.unconfined = tuple(layer for layer in LAYERS if layer in missing.decode(errors="replace").split())

    def decode_into(self, sink: Sink, file: BinaryIO, container: str, wanted: Wanted) -> Origin:
        """Decode a seekable ``file``; ``sink`` gets the bytes of float32 samples.

        The child reads a copy in its file of copies or, of a large file, a descriptor that only reads.

        Raises:
            OSError: if the system has no room or no descriptor for the file.
            AudioError: if the child refuses the file.
            ChildLostError: if the child dies, takes too long, or answers against the protocol.
            ChildStartError: if it died before it was given the file.
        """
        began = time.monotonic()
        is_copied = self._copies.take(file)
        limits = wanted.limits
        most = [math.ceil(wanted.rate * (limits.max_seconds + 1))] * (MOST_CHANNELS if wanted.by_channel else 1)
        asked = request(container, wanted)
        with contextlib.nullcontext() if is_copied else read_only(file) as descriptor:
            self._files += 1
            self._is_answering = True
            try:
                socket.send_fds(self._connection, [asked], [] if descriptor is None else [descriptor])
            except OSError as error:
                raise ChildStartError("a decoding process ended while it was idle") from error
        try:
            behind = self._samples(sink, most, began + self._confinement.seconds)
            return read_origin(behind, container, limits)
        except TimeoutError:
            most_seconds = self._confinement.seconds
            raise ChildLostError(f"decoding takes more than {most_seconds:g} s, the most allowed") from None
        except OSError:
            raise ChildDiedError("the decoder crashed on it") from None
        except (ValueError, IndexError, struct.error) as error:
            if isinstance(error, AudioError):
                raise
            self._is_answering = True
            raise ChildLostError("the decoder answered nonsense") from error
        finally:
            self._worked += time.monotonic() - began

    def kill(self) -> None:
        """Kill the child; any thread may call this. A thread that waits for an answer gets ChildLostError."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the child and release its resources; only the thread that uses it may call this."""
        self.kill()
        self._process.wait()
        self._connection.close()
        self._copies.close()
        self._memory.close()

    def _samples(self, sink: Sink, most: list[int], deadline: float) -> bytes:
        """Pass samples to ``sink``, at most ``most`` of each channel, until the file is done; return what it is."""
        while True:
            kind, pieces, behind = self._message(deadline)
            self._is_answering = kind is Kind.FULL
            start = 0
            for channel, count in pieces:
                most[channel] -= count
                stop = start + 4 * count
                if most[channel] < 0 or stop > RING_BYTES:
                    raise ValueError(f"{count} samples of channel {channel}")
                for begin in range(start, stop, _BLOCK):
                    # A copy, and only then checked: the child may still write.
                    copy = self._memory[begin : min(begin + _BLOCK, stop)]
                    check_numbers(np.frombuffer(copy, np.float32))
                    sink(copy, channel)
                start = stop
            match kind:
                case Kind.FULL:
                    if not pieces:
                        raise ValueError("an empty ring is full")
                    self._bound(deadline - time.monotonic())
                    self._connection.sendall(GO_ON)
                case Kind.DONE:
                    return behind
                case Kind.REFUSED:
                    self.has_refused = True
                    raise read_refusal(behind)
                case _:
                    raise ValueError(f"a message of kind {kind.name}")

    def _bound(self, seconds: float) -> None:
        """Limit how long the system waits for a message, without another call for each."""
        if seconds <= 0:
            raise TimeoutError
        whole = int(seconds)
        self._connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", whole, int(1e6 * (seconds - whole)) or 1)
        )

    def _message(self, deadline: float) -> tuple[Kind, list[tuple[int, int]], bytes]:
        received = self._receive(deadline)
        while len(received) < HEADER.size or (left := length(received) - len(received)) > 0:
            received += self._receive(deadline)
        if left:
            raise ValueError("two messages at once")
        return read_message(received)

    def _receive(self, deadline: float) -> bytes:
        try:
            received = self._connection.recv(MOST_BYTES_OF_MESSAGE)
        except BlockingIOError:
            raise TimeoutError from None
        if not received:
            raise ConnectionResetError
        if time.monotonic() > deadline:
            raise TimeoutError
        return received
