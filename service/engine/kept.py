"""What engines have found out about a machine, in JSON files that later engines read."""

import json
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger("steno.engine")

T = TypeVar("T")


class KeptFile:
    """A file. One that cannot be read counts as empty; one that cannot be written is left; both are logged.

    Args:
        name: its name in `steno` in the user's cache folder.
    """

    def __init__(self, name: str) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118
        self._path = Path(home) / "steno" / name

    def read(self, parse: Callable[[Any], T]) -> T | None:
        """Return what `parse`, which may raise whatever wrong types lead to, makes of its JSON; None if it is empty."""
        try:
            return parse(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            self._warn("what an engine kept cannot be read", error)
            return None

    def write(self, content: Any) -> None:  # noqa: ANN401  # JSON
        """Replace the file atomically; of two engines writing at once, one wins."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._path.parent) as folder:  # removed also if the disk is full
                file = Path(folder) / self._path.name
                file.write_text(json.dumps(content, indent=1), encoding="utf-8")
                file.replace(self._path)
        except OSError as error:
            self._warn("what an engine keeps cannot be written", error)

    def _warn(self, what: str, error: Exception) -> None:
        log.warning(what, extra={"path": str(self._path), "why": str(error)})
