"""Measures a service's processes, threads, descriptors, memory, shared memory and files."""

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

# What libraries keep for later, and what a run of this length may leave in the arenas of the C library.
_SPARE_BYTES = 96 << 20
_SPARE_THREADS = 4
_SPARE_DESCRIPTORS = 6
_OF_A_DECODER = 4  # files that the front has open for each: a connection, the ring, and copies to write and to read


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that live."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def workers(pid: int) -> list[int]:
    """Return the HTTP processes of a service, if it has several."""
    return [child for child in children(pid) if "service.workers" in _command(child)]


def engine(pid: int) -> list[int]:
    """Return the engine processes of a service."""
    return [child for child in children(pid) if "service.engine" in _command(child)]


def decoders(pid: int) -> list[int]:
    """Return the decoding processes of a service."""
    return [child for parent in (pid, *workers(pid)) for child in children(parent) if "audio.child" in _command(child)]


def descriptors(pid: int) -> int:
    """Return how many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@dataclass(frozen=True, slots=True)
class Level:
    """What a service takes when it has nothing to do."""

    memory_bytes: int  # resident memory of the front, which is the main process and the workers
    shared_bytes: int  # of that, shared memory and pages of files
    engine_bytes: int  # resident memory of the engines
    descriptors: int  # files that the front has open
    threads: int  # of the front
    engines: int  # processes
    decoders: int  # processes
    children: int  # processes of any kind
    files: int  # in the folder for temporary files

    @classmethod
    def of(cls, pid: int, folder: Path) -> "Level":
        """Look at a service."""
        engines = engine(pid)
        front = (pid, *workers(pid))
        resident, shared = (sum(sizes) for sizes in zip(*map(_memory, front), strict=True))
        return cls(
            memory_bytes=resident,
            shared_bytes=shared,
            engine_bytes=sum(_memory(one)[0] for one in engines),
            descriptors=sum(map(descriptors, front)),
            threads=sum(len(os.listdir(f"/proc/{one}/task")) for one in front),
            engines=len(engines),
            decoders=len(decoders(pid)),
            children=sum(len(children(one)) for one in front),
            files=len(list(folder.iterdir())),
        )

    def excess(self, after: "Level") -> list[str]:
        """Return what is not back at this level, one line each."""
        bounds = {
            "memory_bytes": _SPARE_BYTES,
            "shared_bytes": _SPARE_BYTES,
            "engine_bytes": 2 * _SPARE_BYTES,
            "descriptors": _SPARE_DESCRIPTORS + _OF_A_DECODER * max(0, after.decoders - self.decoders),
            "threads": _SPARE_THREADS,
            "engines": 0,
            "decoders": _SPARE_THREADS,
            "children": _SPARE_THREADS,
            "files": 0,
        }
        return [
            f"{name}: {getattr(self, name)} before, {getattr(after, name)} after"
            for name, spare in bounds.items()
            if getattr(after, name) > getattr(self, name) + spare
        ]


def _memory(pid: int) -> tuple[int, int]:
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0, 0
    return resident * resource.getpagesize(), shared * resource.getpagesize()
