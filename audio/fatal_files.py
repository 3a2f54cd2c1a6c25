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
    losses: int
    until: float
    error: InvalidAudioError


class FatalFiles:
    """Files that cost decoders, for an hour after the last one. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_size: dict[int, dict[bytes, _Fatal]] = {}  # by size first: most files need no digest

    def check(self, file: BinaryIO) -> None:
        """Refuse a file that cost two decoders, as it was refused before. Its position is undefined afterwards."""
        if not self._by_size:
            return
        same = self._by_size.get(file.seek(0, os.SEEK_END))
        fatal = same.get(_digest(file)) if same else None
        if fatal is not None and fatal.losses >= _MOST_LOSSES and time.monotonic() < fatal.until:
            raise type(fatal.error)(str(fatal.error))

    def note(self, file: BinaryIO, losses: int, error: InvalidAudioError) -> None:
        """Note that a file cost ``losses`` decoders, and how it was refused. Its position is undefined afterwards."""
        size, digest, now = file.seek(0, os.SEEK_END), _digest(file), time.monotonic()
        with self._lock:
            self._forget(now)
            same = self._by_size.get(size, {})
            known = same[digest].losses if digest in same else 0
            # Replaced, not changed: `check` reads without the lock.
            self._by_size[size] = same | {digest: _Fatal(known + losses, now + _SECONDS, error)}

    def _forget(self, now: float) -> None:
        noted = [(size, *one) for size, same in self._by_size.items() for one in same.items()]
        kept = sorted((one for one in noted if one[2].until > now), key=lambda one: one[2].until)
        self._by_size = {}
        for size, digest, fatal in kept[1 - _MOST_FILES :]:
            self._by_size.setdefault(size, {})[digest] = fatal


def _digest(file: BinaryIO) -> bytes:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(_READ_BYTES):
        digest.update(block)
    return digest.digest()
