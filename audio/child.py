"""The child process that decodes untrusted files, one after another: `python -m audio.child`.

It confines itself first, so that a file that crashes, hangs or fills memory ends this process only. Its standard input
is the socket to the pool.
"""

import json
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

import audio.packets  # noqa: F401  # loads its libraries before the limits are set
from audio.child_protocol import MOST_BYTES_OF_FRAME, MOST_BYTES_OF_REQUEST, Kind, frame
from audio.decode import decode_into
from audio.errors import AudioError, InvalidAudioError
from audio.limits import AudioLimits

_MOST_DESCRIPTORS = 32


def main() -> None:
    """Decode files until the pool closes the socket."""
    memory_bytes, seconds = (int(argument) for argument in sys.argv[1:])
    _confine(memory_bytes)
    with socket.socket(fileno=0) as pool, suppress(ConnectionError):  # the pool may close it in the middle of an answer
        pool.sendall(frame(Kind.READY))
        while True:
            message, descriptors, _, _ = socket.recv_fds(pool, MOST_BYTES_OF_REQUEST, 1)
            if not message:
                return
            _limit_processor_time(seconds)
            request = json.loads(message)
            with open(descriptors[0], "rb") as file:  # noqa: PTH123  # a descriptor has no path
                pool.sendall(_answer(file, request, pool.sendall, memory_bytes))


def _answer(file: BinaryIO, request: dict[str, Any], send: Callable[[bytes], None], memory_bytes: int) -> bytes:
    def sink(samples: bytes | memoryview, channel: int) -> None:
        for start in range(0, len(samples), MOST_BYTES_OF_FRAME):
            send(frame(Kind.SAMPLES, samples[start : start + MOST_BYTES_OF_FRAME], channel))

    try:
        limits = AudioLimits(**request["limits"])
        origin = decode_into(sink, file, rate=request["rate"], limits=limits, by_channel=request["by_channel"])
    except AudioError as error:
        return _refusal(error)
    except MemoryError:
        most = memory_bytes >> 20
        return _refusal(InvalidAudioError(f"decoding takes more than {most} MiB of memory, the most allowed"))
    return frame(Kind.ORIGIN, json.dumps(asdict(origin)).encode())


def _refusal(error: AudioError) -> bytes:
    return frame(Kind.REFUSAL, json.dumps([error.code, str(error)]).encode())


def _confine(memory_bytes: int) -> None:
    """Limit this process to ``memory_bytes``, libraries included, and few open files; forbid writing and core dumps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool, which closes the socket
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _MOST_DESCRIPTORS)


def _limit(resource_kind: int, most: int) -> None:
    """Set a limit that cannot be raised; a lower one of the system stays, because raising it needs privileges."""
    most, _ = _within(resource_kind, most)
    resource.setrlimit(resource_kind, (most, most))


def _within(resource_kind: int, most: int) -> tuple[int, int]:
    """Return a limit, lowered to the highest that the system allows, and the highest."""
    _, highest = resource.getrlimit(resource_kind)
    return (most if highest == resource.RLIM_INFINITY else min(most, highest)), highest


def _limit_processor_time(seconds: int) -> None:
    """Have the system end this process after ``seconds`` more of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, _within(resource.RLIMIT_CPU, most))  # the next file gets more


if __name__ == "__main__":
    main()
