"""The pool's side of one child process: start it, send it a file, read the answer within bounds, end it."""

import json
import math
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from audio.child_protocol import HEADER, MOST_BYTES_OF_FRAME, Kind
from audio.decode import Origin, Sink
from audio.errors import AudioError
from audio.limits import AudioLimits

_START_SECONDS = 60.0
_ERRORS = {error.code: error for error in AudioError.__subclasses__()}
# Each file is decoded in one thread; numpy's BLAS would start its own, and their stacks count as memory.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Confinement:
    """Limits of a child process.

    Attributes:
        memory_bytes: its address space; Python and FFmpeg's libraries take some 250 MB of it.
        seconds: wall time for one file. The same limit on processor time ends a child whose pool was killed.
        files: a child is replaced after this number of files.
    """

    memory_bytes: int = 1 << 30
    seconds: float = 300.0
    files: int = 200


class ChildLostError(Exception):
    """The child died while it decoded a file, took too long, or answered nonsense; the message says which."""


class ChildDiedError(ChildLostError):
    """The child died, because of the file or of something else."""


class ChildStartError(Exception):
    """The child died before it was given a file."""


class ChildProcess:
    """A process that runs ``audio.child``; one thread at a time may use it.

    Raises:
        ChildStartError: if the system cannot start another process.
    """

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement
        self._files = 0
        self._is_answering = False
        self._connection, theirs = socket.socketpair()
        arguments = (str(confinement.memory_bytes), str(math.ceil(confinement.seconds)))
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # nothing in the command comes from outside
                    [sys.executable, "-P", "-m", "audio.child", *arguments],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=os.environ | _ENVIRONMENT,
                )
            except OSError as error:  # no more processes, memory or descriptors
                self._connection.close()
                raise ChildStartError(f"a decoding process cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether the child lives, is idle, and may decode another file."""
        is_fresh = self._files < self._confinement.files
        return is_fresh and not self._is_answering and self._process.poll() is None

    def decode_into(
        self, sink: Sink, descriptor: int, *, rate: int, limits: AudioLimits, by_channel: bool = False
    ) -> Origin:
        """Decode the file behind ``descriptor``, and move its position; ``sink`` gets the bytes of float32 samples.

        Raises:
            AudioError: if the child refuses the file.
            ChildLostError: if the child dies, takes too long, or answers against the protocol.
            ChildStartError: if the child did not start.
        """
        if self._files == 0:
            self._wait_until_ready()
        self._files += 1
        self._is_answering = True
        deadline = time.monotonic() + self._confinement.seconds
        request = json.dumps({"rate": rate, "limits": asdict(limits), "by_channel": by_channel}).encode()
        most = [4 * int(rate * (limits.max_seconds + 1))] * (limits.max_channels if by_channel else 1)
        try:
            socket.send_fds(self._connection, [request], [descriptor])
            return self._answer(sink, most, deadline)
        except TimeoutError:
            raise ChildLostError(
                f"decoding takes more than {self._confinement.seconds:g} s, the most allowed"
            ) from None
        except OSError:
            raise ChildDiedError("the decoder crashed on it") from None
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, AudioError):
                raise
            raise ChildLostError("the decoder answered nonsense") from error

    def kill(self) -> None:
        """Kill the child; any thread may call this. A thread that waits for an answer gets ChildLostError."""
        self._process.kill()

    def close(self) -> None:
        """End the child and release its resources; only the thread that uses it may call this."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _wait_until_ready(self) -> None:
        try:
            self._frame(time.monotonic() + _START_SECONDS)
        except OSError as error:
            self.close()
            raise ChildStartError(f"a decoding process does not start; it ended with {self._process.poll()}") from error

    def _answer(self, sink: Sink, most: list[int], deadline: float) -> Origin:
        """Pass samples to ``sink``, at most ``most`` bytes of each channel, until an origin or a refusal comes."""
        while True:
            kind, channel, body = self._frame(deadline)
            if kind is Kind.SAMPLES and channel < len(most) and len(body) <= most[channel]:
                most[channel] -= len(body)
                sink(body, channel)
            elif kind is Kind.ORIGIN:
                origin = Origin(**json.loads(body))
                self._is_answering = False
                return origin
            elif kind is Kind.REFUSAL:
                code, message = json.loads(body)
                refusal = _ERRORS[code](message)
                self._is_answering = False
                raise refusal
            else:
                raise ValueError(f"a frame of kind {kind.name} with {len(body)} bytes for channel {channel}")

    def _frame(self, deadline: float) -> tuple[Kind, int, bytes]:
        kind, channel, length = HEADER.unpack(self._receive(HEADER.size, deadline))
        if length > MOST_BYTES_OF_FRAME:
            raise ValueError(f"a frame of {length} bytes")
        return Kind(kind), channel, self._receive(length, deadline)

    def _receive(self, count: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            piece = self._connection.recv(count - len(received))
            if not piece:
                raise ConnectionResetError
            received += piece
        return bytes(received)
