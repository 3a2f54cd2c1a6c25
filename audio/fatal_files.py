"""Remembers files that cost decoders their lives, so that a client that tries again costs no more of them."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from typing import BinaryIO

from audio.errors import InvalidAudioError

_SECONDS = 3600.0
_MOST_FILES = 1000
_MOST_LOSSES = 2
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Fatal:
    size: int
    digest: bytes
    losses: int
    until: float
    error: InvalidAudioError


class FatalFiles:
    """Files that cost decoders, for an hour after the last one. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[_Fatal, ...] = ()  # the latest last; replaced, not changed: `check` takes no lock

    def check(self, file: BinaryIO) -> None:
        """Refuse a file that cost two decoders, as it was refused before. Its position is undefined afterwards."""
        size = file.seek(0, os.SEEK_END) if self._known else 0
        alike = [fatal for fatal in self._known if fatal.size == size]  # most files need no digest
        digest = _digest(file) if alike else b""
        for fatal in alike:
            if fatal.digest == digest and fatal.losses >= _MOST_LOSSES and time.monotonic() < fatal.until:
                raise type(fatal.error)(str(fatal.error))

    def note(self, file: BinaryIO, losses: int, error: InvalidAudioError) -> None:
        """Note that a file cost ``losses`` decoders, and how it was refused. Its position is undefined afterwards."""
        size, digest, now = file.seek(0, os.SEEK_END), _digest(file), time.monotonic()
        with self._lock:
            known = [fatal for fatal in self._known if fatal.until > now]
            losses += sum(fatal.losses for fatal in known if fatal.digest == digest)
            others = [fatal for fatal in known if fatal.digest != digest][1 - _MOST_FILES :]
            self._known = (*others, _Fatal(size, digest, losses, now + _SECONDS, error))


def _digest(file: BinaryIO) -> bytes:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(_READ_BYTES):
        digest.update(block)
    return digest.digest()
