"""Fast paths that have failed before on a device, kept in a file, so that no later engine tries them.

Their fate depends on the device, its driver, and the versions of PyTorch and Triton; another of these is tried anew.
"""

import json
import logging
import tempfile
from pathlib import Path

from service.engine.budgets import cache_folder

log = logging.getLogger("steno.engine")


class Quarantine:
    """Barred fast paths, by setup. A file that cannot be read counts as empty; one that cannot be written is left.

    Args:
        path: the file; None is `steno/fast_paths.json` in the user's cache folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder() / "fast_paths.json"

    def find(self, setup: str) -> dict[str, str]:
        """Return what became of each path that is barred in a setup."""
        return self._read().get(setup, {})

    def keep(self, setup: str, path: str, state: str) -> None:
        """Write a barred path, and replace the file atomically."""
        known = self._read()
        known.setdefault(setup, {})[path] = state
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._path.parent) as folder:  # removed also if the disk is full
                file = Path(folder) / self._path.name
                file.write_text(json.dumps(known, indent=1), encoding="utf-8")
                file.replace(self._path)
        except OSError as error:
            log.warning("a barred fast path cannot be kept", extra={"path": str(self._path), "why": str(error)})

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
            return {
                str(setup): {str(path): str(state) for path, state in paths.items()} for setup, paths in known.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            log.warning("barred fast paths cannot be read", extra={"path": str(self._path), "why": str(error)})
            return {}
