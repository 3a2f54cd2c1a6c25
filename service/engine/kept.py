"""What engines have found out about a machine, in JSON files that later engines read."""

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

log = logging.getLogger("steno.engine")

_MOST_KEPT = 64

T = TypeVar("T")


class Kept(Generic[T]):
    """A file in `steno` in the user's cache folder: a value for each setup, a text of all that the value depends on.

    One that cannot be read counts as empty; one that cannot be written is left; both are logged.
    """

    def __init__(self, name: str, value: type[T]) -> None:
        self._name = name
        self._parse = msgspec.json.Decoder(dict[str, value]).decode  # type: ignore[valid-type]

    def find(self, setup: str) -> T | None:
        """Return the value of a setup; None if there is none."""
        return self._read().get(setup)

    def keep(self, setup: str, value: T) -> None:
        """Write the value of a setup, and replace the file atomically; of two engines that write at once, one wins."""
        others = {one: known for one, known in self._read().items() if one != setup}
        content = dict([*others.items(), (setup, value)][-_MOST_KEPT:])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._path.parent) as folder:  # removed also if the disk is full
                file = Path(folder) / self._name
                file.write_text(json.dumps(content, indent=1), encoding="utf-8")
                file.replace(self._path)
        except OSError as error:
            self._warn("what an engine keeps cannot be written", error)

    @property
    def _path(self) -> Path:
        # Not by `Path.expanduser`, which fails for a user without a home.
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
        return Path(home) / "steno" / self._name

    def _read(self) -> dict[str, T]:
        try:
            return self._parse(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            self._warn("what an engine kept cannot be read", error)
            return {}

    def _warn(self, what: str, error: Exception) -> None:
        log.warning(what, extra={"path": str(self._path), "why": str(error)})


# Measured batch budgets in seconds.
BUDGETS = Kept("budgets.json", float)
# What became of fast paths that failed before. It depends on the device, its driver, and the versions of PyTorch and
# Triton; with another of these they are tried anew.
FAST_PATHS = Kept("fast_paths.json", dict[str, str])


def barred(setup: str) -> dict[str, str]:
    """Return what became of each fast path that is barred in a setup."""
    return FAST_PATHS.find(setup) or {}


def bar(setup: str, path: str, state: str) -> None:
    """Keep that a fast path is barred in a setup."""
    FAST_PATHS.keep(setup, barred(setup) | {path: state})
