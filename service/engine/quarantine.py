"""Fast paths that have failed before on a device, kept in a file, so that no later engine tries them.

Their fate depends on the device, its driver, and the versions of PyTorch and Triton; another of these is tried anew.
"""

from typing import Any

from service.engine.kept import KeptFile


class Quarantine:
    """Barred fast paths, by setup, in `fast_paths.json`."""

    def __init__(self) -> None:
        self._file = KeptFile("fast_paths.json")

    def find(self, setup: str) -> dict[str, str]:
        """Return what became of each path that is barred in a setup."""
        return (self._file.read(_parsed) or {}).get(setup, {})

    def keep(self, setup: str, path: str, state: str) -> None:
        """Write a barred path."""
        known = self._file.read(_parsed) or {}
        known.setdefault(setup, {})[path] = state
        self._file.write(known)


def _parsed(known: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401  # JSON
    return {str(setup): {str(path): str(state) for path, state in paths.items()} for setup, paths in known.items()}
