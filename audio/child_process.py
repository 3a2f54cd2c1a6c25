"""The pool's end of one child: start it, ask for a file, read the answer within bounds, end it."""

import json
import math
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from audio.child_protocol import HEADER, MOST_BYTES_OF_FRAME, Kind
from audio.decode import Origin, Take
from audio.errors import AudioError
from audio.limits import AudioLimits

_START_SECONDS = 60.0
_ERRORS = {error.code: error for error in AudioError.__subclasses__()}
# Each file is decoded in one thread; numpy's BLAS would start its own, and their stacks count as memory.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a child may take.

    Attributes:
        memory_bytes: address space, of which Python and FFmpeg's libraries take some 250 MB.
        seconds: time for one file; as much processor time ends a child whose pool was killed.
        files: after so many it is replaced.
    """

    memory_bytes: int = 1 << 30
    seconds: float = 300.0
    files: int = 200


class ChildLostError(Exception):
    """The child died of the file, or had to be killed; the message says why."""


class ChildDiedError(ChildLostError):
    """It died by itself: of the file, or of something else."""


class ChildStartError(Exception):
    """The child died before it was given a file."""


class ChildProcess:
    """A process that runs ``audio.child``; one thread at a time may use it.

    Raises:
        ChildStartError: if there is no room for another process.
    """

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement
        self._files = 0
        self._owes_an_answer = False
        self._connection, theirs = socket.socketpair()
        arguments = (str(confinement.memory_bytes), str(math.ceil(confinement.seconds)))
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # nothing in the command comes from outside
                    [sys.executable, "-m", "audio.child", *arguments],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=os.environ | _ENVIRONMENT,
                )
            except OSError as error:  # no process, no memory, no descriptor
                self._connection.close()
                raise ChildStartError(f"a decoding process cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it lives, has answered everything, and may decode another file."""
        is_fresh = self._files < self._confinement.files
        return is_fresh and not self._owes_an_answer and self._process.poll() is None

    def decode_into(
        self, take: Take, descriptor: int, *, rate: int, limits: AudioLimits, by_channel: bool = False
    ) -> Origin:
        """Decode the file behind ``descriptor``, whose position it moves; ``take`` gets the bytes of float32 samples.

        Raises:
            AudioError: if the child refuses the file.
            ChildLostError: if the child dies, takes too long, or answers what no sound child would.
            ChildStartError: if it did not even start.
        """
        if self._files == 0:
            self._wait_until_ready()
        self._files += 1
        self._owes_an_answer = True
        deadline = time.monotonic() + self._confinement.seconds
        request = json.dumps({"rate": rate, "limits": asdict(limits), "by_channel": by_channel}).encode()
        most = [4 * int(rate * (limits.max_seconds + 1))] * (limits.max_channels if by_channel else 1)
        try:
            socket.send_fds(self._connection, [request], [descriptor])
            return self._answer(take, most, deadline)
        except TimeoutError:
            raise ChildLostError(f"it takes more than {self._confinement.seconds:g} s, the most allowed") from None
        except OSError:
            raise ChildDiedError("the decoder crashed on it") from None
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, AudioError):
                raise
            raise ChildLostError("the decoder answered nonsense") from error

    def kill(self) -> None:
        """End it at once; any thread may, and the one that waits for an answer learns of it."""
        self._process.kill()

    def close(self) -> None:
        """End it and leave nothing behind; for the thread that uses it."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _wait_until_ready(self) -> None:
        try:
            self._frame(time.monotonic() + _START_SECONDS)
        except OSError as error:
            self.close()
            raise ChildStartError(f"a decoding process does not start; it ended with {self._process.poll()}") from error

    def _answer(self, take: Take, most: list[int], deadline: float) -> Origin:
        """Hand over samples, ``most`` bytes of each channel at most, until the origin or a refusal comes."""
        while True:
            kind, channel, body = self._frame(deadline)
            if kind is Kind.SAMPLES and channel < len(most) and len(body) <= most[channel]:
                most[channel] -= len(body)
                take(body, channel)
            elif kind is Kind.ORIGIN:
                origin = Origin(**json.loads(body))
                self._owes_an_answer = False
                return origin
            elif kind is Kind.REFUSAL:
                code, message = json.loads(body)
                refusal = _ERRORS[code](message)
                self._owes_an_answer = False
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
