"""The rows of a benchmark, written to a file as they are measured, so that a stopped run can continue."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Row = dict[str, Any]
Cell = TypeVar("Cell", bound=tuple[object, ...])


def add_rows_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--rows``, the file in which `Rows` keeps rows."""
    parser.add_argument(
        "--rows", type=Path, help="file that rows are written to as they come; those that it has are not measured again"
    )


class Rows:
    """The measured rows of a benchmark, cell by cell."""

    def __init__(self, benchmark: str, about: Mapping[str, Any], path: Path | None = None) -> None:
        """Continue with the rows of a file, if there is one.

        Args:
            benchmark: its name.
            about: facts about all rows: options, machine, versions.
            path: file of JSON lines, the first of which is ``about``; None writes no file.

        Raises:
            ValueError: if the file is of another run.
        """
        self._about = {"benchmark": benchmark, **json.loads(json.dumps(about, default=str))}
        self._path = path
        self._cells: dict[str, Sequence[Row]] = {}
        if path is None:
            return
        # The last line may be cut short, because the run was stopped while it was written.
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        kept = [json.loads(line) for line in lines if line.endswith("\n")]
        if kept and kept[0] != self._about:
            raise ValueError(f"{path} has rows of another run: {kept[0]}, and not {self._about}")
        self._cells = {line["cell"]: line["rows"] for line in kept[1:]}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept or [self._about])

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows, in the order of measurement."""
        for rows in self._cells.values():
            yield from rows

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not measured yet."""
        return [cell for cell in cells if _name(cell) not in self._cells]

    def add(self, cell: tuple[object, ...], *rows: Row) -> None:
        """Add the row or rows of a cell."""
        self._cells[_name(cell)] = rows
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"cell": _name(cell), "rows": rows}) + "\n")

    def line(self) -> str:
        """Return all rows as one line of JSON."""
        return json.dumps({**self._about, "rows": list(self)})


def _name(cell: tuple[object, ...]) -> str:
    return " ".join(map(str, cell))
