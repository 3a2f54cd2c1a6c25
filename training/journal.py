"""The log of a run: JSON Lines, one for each step or measurement."""

import json
import os
from pathlib import Path
from typing import Any

from training.errors import ResumeError, TrainingError


class Journal:
    """Writes a log that is the same as if the run had never stopped.

    Attributes:
        measured: the word error rates in it, over all sources.
    """

    def __init__(self, path: Path, steps: int) -> None:
        """Open a log, and drop its lines about steps after the first ``steps``, which will be done again.

        Raises:
            ResumeError: if it is damaged.
            TrainingError: if it cannot be written.
        """
        self._path = path
        self.measured: list[float] = []
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if not line.endswith("\n"):
                    break  # cut short when the run was killed
                try:
                    fields = json.loads(line)
                    if fields["step"] > steps:
                        break
                    self.measured += [fields["wer"]["all"]] if "all" in fields.get("wer", {}) else []
                except (ValueError, KeyError, TypeError) as error:
                    raise ResumeError(f"{path} is damaged; move it away to begin another log") from error
                kept.append(line)
        fresh = path.with_suffix(".new")
        try:
            fresh.write_text("".join(kept), encoding="utf-8")
            fresh.replace(path)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise self._unwritable(error) from error

    def write(self, **fields: Any) -> None:  # noqa: ANN401  # what JSON holds
        """Add a line, as a whole or, if the disk is full, not at all.

        Raises:
            TrainingError: if it cannot be written.
        """
        end = os.fstat(self._file.fileno()).st_size
        line = memoryview((json.dumps(fields) + "\n").encode())
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            self._file.truncate(end)
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> TrainingError:
        return TrainingError(f"{self._path} cannot be written: {error.strerror}; --resume goes on from the last state")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
