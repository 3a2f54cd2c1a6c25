"""The log of a run: one JSON object a line, one line a step or a measurement."""

import json
from pathlib import Path
from typing import Any

from training.errors import ResumeError


class Journal:
    """Appends to a log that tells the run as if it had never stopped."""

    def __init__(self, path: Path, steps: int) -> None:
        """Open a log, without what it says about steps after the first ``steps``, which are about to be done again.

        Raises:
            ResumeError: if it is damaged.
        """
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if not line.endswith("\n"):
                    break  # cut short when the run was killed
                try:
                    if json.loads(line)["step"] > steps:
                        break
                except (ValueError, KeyError, TypeError) as error:
                    raise ResumeError(f"{path} is damaged; move it away to begin another log") from error
                kept.append(line)
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(kept), encoding="utf-8")
        fresh.replace(path)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, **fields: Any) -> None:  # noqa: ANN401  # what JSON holds
        """Add a line."""
        self._file.write(json.dumps(fields) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
