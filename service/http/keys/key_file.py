"""A file of API keys that is read again when it changes."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from service.http.keys.access import Access
from service.keys import Key, KeyLimits
from service.metrics import Metrics
from service.threads import in_thread_if_possible

log = logging.getLogger("steno.keys")

_LOOK_SECONDS = 1.0


_OPTIONS: dict[str, Callable[[str], float]] = {
    "max_requests": int,
    "requests_per_minute": int,
    "audio_seconds_per_minute": float,
}


def parse_keys(text: str, default: KeyLimits) -> list[Key]:
    """Parse lines of `name:sha256`, which limits may follow (`requests_per_minute=60`); `#` begins a comment.

    Raises:
        ValueError: if a line is wrong. The message has its number but not its text, which may be a key itself.
    """
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        entry, *options = line.partition("#")[0].split() or [""]
        if not entry:
            continue
        try:
            keys.append(Key.parse(entry, _limits(options, default)))
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
    return keys


def _limits(options: list[str], default: KeyLimits) -> KeyLimits | None:
    own: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise ValueError("has something that is not option=value")
        if name not in _OPTIONS:
            raise ValueError(f"has an unknown option; there are {', '.join(_OPTIONS)}")
        try:
            own[name] = _OPTIONS[name](value)
        except ValueError:
            own[name] = 0
        if not 0 < own[name] < math.inf:
            raise ValueError(f"has a wrong {name}: it must be a number above 0")
    return replace(default, **own) if own else None


class KeyFile:
    """The keys of a file and of the settings, which are always valid; `default` are limits that a line does not set."""

    def __init__(self, path: Path, others: list[Key], default: KeyLimits) -> None:
        self._path = path
        self._others = others
        self._default = default
        self._seen: object = None
        self._changing: object = None

    def read(self) -> list[Key]:
        """Return all keys; raise ValueError if the file cannot be read, or a line is wrong."""
        try:
            self._seen = self._state()
            text = self._path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ValueError(f"{self._path}: {reason}") from None
        try:
            return [*self._others, *parse_keys(text, self._default)]
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None

    def refresh(self) -> list[Key] | None:
        """Return all keys if the file has changed since it was last read, and not since the last call; else None.

        A file that is rewritten in place is empty for a moment, and would shut everybody out.

        Raises:
            ValueError: as `read`; only once for each state of the file.
        """
        try:
            state = self._state()
            if state == self._seen:
                return None
            if state != self._changing:
                self._changing = state
                return None
        except OSError:
            if self._seen is None:
                return None
            self._seen = None
            raise ValueError(f"{self._path}: it is gone") from None
        return self.read()

    def _state(self) -> object:
        status = self._path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    async def watch(self, access: Access, metrics: Metrics, on_change: Callable[[list[Key]], None]) -> None:
        """Check the file every second, and pass on new keys; errors are logged, and the keys stay as they are."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                keys = await in_thread_if_possible(self.refresh)  # without a thread, too: a key may be withdrawn
                if keys is None:
                    continue
                access.replace(keys)
                on_change(keys)
            except ValueError as error:
                log.error("keys stay as they are", extra={"reason": str(error)})  # noqa: TRY400
                continue
            metrics.expect_keys(access.names)
            log.info("keys read", extra={"keys": len(keys), "names": len(access.names)})
