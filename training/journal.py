"""The log of a run: JSON Lines, one for each step or measurement."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.errors import ResumeError, TrainingError
from training.loggers import Logger
from training.replaced import replaced
from training.snapshot import STATE

# The averaged weights at the lowest word error rate, in the run's folder.
BEST = "best.nemo"


class Journal:
    """Writes a log that goes on as if the run had never stopped.

    Attributes:
        measured: the word error rates over all sources in the lines that were kept.
    """

    def __init__(self, path: Path, steps: int, loggers: Sequence[Logger] = ()) -> None:
        """Open a log, and drop its lines about steps after ``steps``, which will be done again.

        Raises:
            ResumeError: if it cannot be read, or is damaged.
            TrainingError: if it cannot be written.
        """
        self._path = path
        self._loggers = loggers
        kept = list(_lines(path, steps))
        self.measured = [rate for _, rate in kept if rate is not None]
        try:
            with replaced(path) as file:
                file.writelines(line.encode() for line, _ in kept)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
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
        for logger in self._loggers:
            logger.add(fields)

    def _unwritable(self, error: OSError) -> TrainingError:
        kept = "; --resume goes on from the last state" if self._path.with_name(STATE).exists() else ""
        return TrainingError(f"{self._path} cannot be written: {error.strerror}{kept}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        for logger in self._loggers:
            logger.close()


class Measured(NamedTuple):
    """A word error rate over all sources, a fraction, and the step after which it was measured."""

    rate: float
    step: int


def best_of(path: Path) -> Measured | None:
    """Return the lowest word error rate in a log, of equal ones the first, whose weights are kept; None without any.

    Raises:
        ResumeError: if it cannot be read, or is damaged.
    """
    measured = (Measured(rate, json.loads(line)["step"]) for line, rate in _lines(path, None) if rate is not None)
    return min(measured, default=None)


def _lines(path: Path, steps: int | None) -> Iterator[tuple[str, float | None]]:
    """Yield the lines of a log up to a step, each with the word error rate over all sources in it, if any."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResumeError(f"{path} cannot be read: {error.strerror or error}") from error
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            return  # cut short when the run was killed
        try:
            fields = json.loads(line)
            if steps is not None and fields["step"] > steps:
                return
            rate = fields.get("wer", {}).get("all")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResumeError(f"{path}, line {number}: damaged; move the file away to begin another log") from error
        yield line, rate
