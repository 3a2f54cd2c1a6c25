"""API keys as the settings have them: names, digests and limits; `steno key` makes both a key and its digest."""

import hashlib
import re
from dataclasses import dataclass

_ENTRY = re.compile(r"([A-Za-z0-9_-]+):([0-9a-f]{64})")


def digest(key: str) -> str:
    """Return the digest of a key: SHA-256 in hexadecimal. Keys are random, so no salt is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of a key; None means no limit."""

    max_requests: int | None = None  # transcriptions under way at the same time
    requests_per_minute: int | None = None  # transcriptions begun in a minute
    audio_seconds_per_minute: float | None = None  # audio transcribed in a minute


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the configuration for a key."""

    name: str
    digest: str
    limits: KeyLimits | None = None  # limits of all keys of this name together; None for those of the service

    @classmethod
    def parse(cls, entry: str, limits: KeyLimits | None = None) -> "Key":
        """Read `name:sha256`.

        Raises:
            ValueError: if it has another form. The message does not show the entry, which may be a key itself.
        """
        found = _ENTRY.fullmatch(entry)
        if not found:
            raise ValueError("is not name:sha256 (`steno key` makes one)")
        return cls(found[1], found[2], limits)
