"""The child process that decodes untrusted files, one after another: `python -m audio.child`.

It gives up all rights but to decode (`audio.confinement`) before it gets a file, so what a file makes of it stays in
it. Its standard input is the socket to the pool.
"""

import gc
import io
import mmap
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

import numpy as np

from audio.child_protocol import (
    GO_ON,
    MOST_BYTES_OF_REQUEST,
    MOST_PIECES,
    RING_BYTES,
    Kind,
    message,
    packed_origin,
    packed_refusal,
    read_request,
)
from audio.confinement import confine
from audio.decode import decode_as
from audio.errors import AudioError, InvalidAudioError
from audio.limits import AudioLimits
from audio.packets import PacketSource
from audio.samples import Samples
from audio.source import every_channel

_COPIES = 3  # the descriptor of small files, which the pool copies


def main() -> None:
    """Decode files until the pool closes the socket."""
    memory_bytes, processor_seconds = (int(argument) for argument in sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool, which closes the socket
    with socket.socket(fileno=0) as pool, suppress(ConnectionError):  # the pool may close it in the middle of an answer
        _, (descriptor, copies), _, _ = socket.recv_fds(pool, 1, 2)
        ring = _Ring(pool, descriptor)
        _load_what_is_lazy()
        gc.freeze()  # what was imported stays, and need not be looked at again
        os.dup2(1, 2)  # what libraries write is discarded, but the errors of the start
        os.dup2(copies, _COPIES)
        os.closerange(_COPIES + 1, 256)  # Python's own of the ring; the socket and the copies stay, and nothing else
        missing = confine(memory_bytes, processor_seconds)
        pool.sendall(message(Kind.READY, behind=" ".join(missing).encode()))
        while True:
            request, descriptors, _, _ = socket.recv_fds(pool, MOST_BYTES_OF_REQUEST, 1)
            if not request:
                return
            os.lseek(_COPIES, 0, os.SEEK_SET)
            number = descriptors[0] if descriptors else _COPIES
            with io.FileIO(number, closefd=number != _COPIES) as reading, io.BufferedReader(reading) as file:
                pool.sendall(_answer(file, request, ring, memory_bytes))


class _Ring:
    """The memory that the pool reads samples from; an `audio.origin.Sink`."""

    def __init__(self, pool: socket.socket, descriptor: int) -> None:
        self._pool = pool
        self._memory = np.frombuffer(mmap.mmap(descriptor, RING_BYTES), np.uint8)
        os.close(descriptor)
        self._address = self._memory.__array_interface__["data"][0]
        self.pieces: list[tuple[int, int]] = []
        self._used = 0

    def __call__(self, samples: bytes | memoryview, channel: int) -> None:
        """Copy samples; where there is no room, have the pool read first."""
        block = np.frombuffer(samples, np.uint8)
        while len(block):
            if self._used == RING_BYTES or len(self.pieces) == MOST_PIECES:
                self._pool.sendall(message(Kind.FULL, self.pieces))
                if self._pool.recv(len(GO_ON)) != GO_ON:
                    raise ConnectionResetError
                self.clear()
            piece = block[: RING_BYTES - self._used]
            if piece.__array_interface__["data"][0] != self._address + self._used:  # else it was decoded into it
                self._memory[self._used : self._used + len(piece)] = piece
            self._used += len(piece)
            count = len(piece) // 4
            if self.pieces and self.pieces[-1][0] == channel:
                self.pieces[-1] = (channel, self.pieces[-1][1] + count)
            else:
                self.pieces.append((channel, count))
            block = block[len(piece) :]

    def room(self, samples: int) -> Samples:
        """Return memory for ``samples`` (float32), which need not be copied then: in the ring, if they fit."""
        place = self._memory[self._used : self._used + 4 * samples]
        return place.view(np.float32) if len(place) == 4 * samples else np.empty(samples, np.float32)

    def clear(self) -> None:
        """Forget what is in it."""
        self.pieces.clear()
        self._used = 0


def _answer(file: BinaryIO, request: bytes, ring: _Ring, memory_bytes: int) -> bytes:
    container, wanted = read_request(request)
    ring.clear()
    try:
        origin = decode_as(container, ring, file, wanted, ring.room)
    except AudioError as error:
        return message(Kind.REFUSED, behind=packed_refusal(error))
    except MemoryError:
        refusal = InvalidAudioError(f"decoding takes more than {memory_bytes >> 20} MiB of memory, the most allowed")
        return message(Kind.REFUSED, behind=packed_refusal(refusal))
    return message(Kind.DONE, ring.pieces, packed_origin(origin))


def _load_what_is_lazy() -> None:
    """Decode a second of silence, for what FFmpeg and PyAV load or find out at the first file."""
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16_000, 2, 16)
    wav = b"RIFF\xa4\x3e\0\0WAVEfmt \x10\0\0\0" + form + b"data\x80\x3e\0\0" + bytes(16_000)
    with PacketSource.open(io.BytesIO(wav), "wav", AudioLimits()) as source:
        for _ in source.blocks(every_channel):
            pass


if __name__ == "__main__":
    main()
