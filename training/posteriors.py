"""A store on disk for a teacher's posteriors (the most probable labels of each frame) and frames of its encoder.

A store is a folder with two files. ``frames.bin`` is memory-mapped and has a record for each frame, clip after clip.
``index.jsonl`` has the range of frames of each take. A take is added to the index after its frames are on the disk,
and frames after the last take are cut off when writing begins, so a writer that was killed can continue.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError

# Records with the fields of ``record_type``.
TeacherFrames = NDArray[np.void]

# The highest id that ``labels`` can hold.
MAX_LABEL = np.iinfo(np.uint16).max


def record_type(labels: int, width: int = 0) -> np.dtype[np.void]:
    """Return the record of a frame.

    Its fields are ``blank``, the blank's probability; ``labels``, the ids of the most probable labels, the best first;
    and ``masses``, their probabilities. Other labels are left out, so all add up to at most 1, within half precision.
    ``hidden`` has ``width`` values of the encoder's frame.
    """
    hidden = ("hidden", "<f2", (width,))
    return np.dtype([("blank", "<f2"), ("labels", "<u2", (labels,)), ("masses", "<f2", (labels,)), hidden])


class PosteriorStore:
    """A store of posteriors, by the names of takes.

    Attributes:
        folder: its folder.
    """

    def __init__(self, folder: Path, labels: int, width: int = 0) -> None:
        """Open a store, or create one.

        Args:
            folder: its folder.
            labels: labels of each frame, besides the blank.
            width: values of each frame of the encoder; 0 keeps none.

        Raises:
            TrainingError: if it is damaged.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._type = record_type(labels, width)
        self._frames_path = folder / "frames.bin"
        self._index_path = folder / "index.jsonl"
        self._frames_path.touch()
        self._index_path.touch()
        self._ranges: dict[str, tuple[int, int]] = {}
        self._map: TeacherFrames = np.empty(0, self._type)
        self._read_index()

    def __contains__(self, name: str) -> bool:
        return name in self._ranges

    def read(self, name: str) -> TeacherFrames:
        """Return the frames of a take, memory-mapped.

        Raises:
            KeyError: if the store does not have them.
        """
        start, count = self._ranges[name]
        if start + count > len(self._map):
            # Behind the last whole record may be a part of one, which another run is writing or was killed in.
            self._map = np.memmap(self._frames_path, dtype=self._type, mode="r", shape=(self._records(),))
        return self._map[start : start + count]

    @contextmanager
    def writing(self) -> Iterator["StoreWriter"]:
        """Open the store for writing.

        Raises:
            TrainingError: if another process is writing to it, or it is damaged.
        """
        with self._frames_path.open("r+b") as frames, self._index_path.open("r+b") as index:
            try:
                fcntl.flock(frames, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise TrainingError(f"{self._frames_path} is being written by another run") from error
            self._read_index()
            frames.truncate(self._end() * self._type.itemsize)
            index.truncate(self._index_end)
            frames.seek(0, os.SEEK_END)
            index.seek(0, os.SEEK_END)
            yield StoreWriter(self._ranges, self._end(), frames.fileno(), index.fileno())

    def _end(self) -> int:
        return max((start + count for start, count in self._ranges.values()), default=0)

    def _records(self) -> int:
        """Return the number of whole records in the file."""
        return self._frames_path.stat().st_size // self._type.itemsize

    def _read_index(self) -> None:
        """Read the index; a last line that was cut short does not count."""
        self._ranges.clear()
        self._index_end = 0
        lines = self._index_path.read_bytes().splitlines(keepends=True)
        size = self._records()  # counted after the index is read, because another run may be adding to both
        for line in lines:
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                start, count = int(entry["start"]), int(entry["frames"])
                self._ranges[str(entry["name"])] = (start, count)
            except (ValueError, KeyError, TypeError) as error:
                raise TrainingError(f"{self._index_path} is damaged; remove its folder to label again") from error
            if not 0 <= start <= start + count <= size:
                raise TrainingError(f"{self._frames_path} is cut short; remove its folder to label again")
            self._index_end += len(line)


class StoreWriter:
    """Adds frames to a store that it has locked."""

    def __init__(self, ranges: dict[str, tuple[int, int]], end: int, frames: int, index: int) -> None:
        self._ranges = ranges
        self._end = end
        self._frames = frames
        self._index = index

    def add(self, names: Sequence[str], frames: Sequence[TeacherFrames]) -> None:
        """Add the frames of some takes; when this returns, they are on the disk."""
        _write(self._frames, b"".join(one.tobytes() for one in frames))
        lines = []
        for name, one in zip(names, frames, strict=True):
            lines.append(json.dumps({"name": name, "start": self._end, "frames": len(one)}) + "\n")
            self._ranges[name] = (self._end, len(one))
            self._end += len(one)
        _write(self._index, "".join(lines).encode())


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)
