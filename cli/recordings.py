"""The recordings that a command line names: files, folders, URLs and a pipe."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from bulk.entries import entries, written
from bulk.storage import absolute, is_url
from cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PIPE = "-"
_PIPE_NAME = "stdin"


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording to transcribe: what the user calls it, and its path or URL.

    Its transcript goes to a place below the output folder: its path below the named folder, or its file's name.
    """

    name: str
    location: str
    place: PurePosixPath


@contextmanager
def recordings(arguments: Sequence[str]) -> Iterator[list[Recording]]:
    """Yield the recordings that the arguments name, each once, in the order given; those of a folder by name.

    Raises:
        JobError: if a folder holds none.
        CommandError: if a name is empty, or standard input is meant and is a terminal.
    """
    with tempfile.TemporaryDirectory(prefix="steno-") as folder:
        found = [one for argument in dict.fromkeys(arguments) for one in _of(argument, Path(folder))]
        yield list({one.location: one for one in found}.values())


def _of(argument: str, folder: Path) -> list[Recording]:
    if argument == PIPE:
        return [_of_pipe(folder)]
    if not argument:  # as of a variable that is not set; a path would be the current folder
        raise CommandError("the name of a recording is empty")
    name = written(argument)
    if is_url(argument):
        return [Recording(name, argument, PurePosixPath(PurePosixPath(argument.partition("?")[0]).name))]
    if not Path(argument).is_dir():
        return [Recording(name, argument, _place(Path(argument).name))]
    top = absolute(argument)
    inside = sorted(entries(argument), key=lambda entry: entry.audio)
    return [
        Recording(str(Path(name, one.audio)), one.location, _place(Path(one.location).relative_to(top).as_posix()))
        for one in inside
    ]


def _place(name: str) -> PurePosixPath:
    """Return a path that is text: each byte of a name that is not UTF-8 becomes ``_ff``, as of a hexadecimal number."""
    return PurePosixPath(re.sub("[\udc80-\udcff]", lambda byte: f"_{ord(byte[0]) & 0xFF:02x}", name))


def _of_pipe(folder: Path) -> Recording:
    """Copy standard input to a file, because decoders seek and a pipe cannot."""
    if sys.stdin.isatty():
        raise CommandError(f"{PIPE} reads a recording from a pipe, and standard input is a terminal")
    path = folder / _PIPE_NAME
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    return Recording(PIPE, str(path), PurePosixPath(_PIPE_NAME))


def transcript_paths(found: Sequence[Recording], folder: Path, suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """Return where the transcripts of each recording, by its location, go: one path for each suffix.

    ``talks/a.mp3`` goes to ``a.srt``, as players look for it; beside a ``talks/a.wav`` both keep their whole names.

    Raises:
        CommandError: if two would go to the same place.
    """
    bare = Counter(one.place.with_suffix("") for one in found)
    paths = {}
    for one in found:
        name = one.place.stem if bare[one.place.with_suffix("")] == 1 else one.place.name
        paths[one.location] = [folder / one.place.with_name(name + suffix) for suffix in suffixes]
    if twice := [path for path, count in Counter(chain.from_iterable(paths.values())).items() if count > 1]:
        raise CommandError(f"two recordings would be written to {twice[0]}; transcribe one of them elsewhere")
    return paths
