"""The folders of LibriSpeech (Panayotov et al., 2015) as training data: `*.trans.txt` beside `*.flac`."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import soundfile


def files_of_transcripts(folder: Path) -> Iterator[Path]:
    """Yield the files of transcripts under a folder."""
    return folder.resolve().rglob("*.trans.txt")


def transcripts(folder: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield the recordings under a folder in order: file, text, set (such as dev-clean) and speaker.

    The folder may be that of all sets, of one, or of a speaker.
    """
    for file in sorted(files_of_transcripts(folder)):
        names = [parent.name for parent in file.parents]
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition(" ")
            if name:
                yield file.with_name(f"{name}.flac"), text, names[2], names[1]


def seconds_of(file: BinaryIO) -> float | None:
    """Return how long a recording is, by its header, or None if that cannot be read."""
    try:
        return float(soundfile.info(file).duration)
    except (OSError, RuntimeError):
        return None
