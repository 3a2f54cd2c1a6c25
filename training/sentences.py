"""Reading sentences: a text file with one on each line, or the transcripts of a manifest."""

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from training.errors import TrainingError
from training.manifest import clips_of

_LONGEST_SENTENCE = 1000
_OF_MANIFESTS = {".json", ".jsonl"}
# Bounds the text that a small archive may unpack to.
_LARGEST_TEXT = 2**28


def read_sentences(path: Path) -> list[str]:
    """Return the sentences of a UTF-8 file, one a line, plain or compressed (`.xz`), without empty lines.

    What is written is the transcript, so numbers and abbreviations should be words. Of a manifest (a folder, or a file
    with ``.json`` or ``.jsonl`` in its name; training/manifest.py), the sentences are the transcripts.

    Raises:
        TrainingError: if it cannot be read, holds no sentence, or one that cannot be said; the message names the line.
    """
    if path.is_dir() or _OF_MANIFESTS.intersection(path.suffixes):
        sentences = [text for clip in clips_of(path) if (text := (clip.text or "").strip())]
    else:
        sentences = _read_text(path)
    if not sentences:
        raise TrainingError(f"{path} has no sentences")
    return sentences


def _read_text(path: Path) -> list[str]:
    try:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8-sig") as file:  # editors on Windows begin it with a byte order mark
            return list(_sentences(path, file))
    except UnicodeDecodeError as error:
        raise TrainingError(f"{path}: not a text file") from error
    except (lzma.LZMAError, EOFError) as error:
        raise TrainingError(f"{path}: {error}") from error
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror or error}") from error


def _sentences(path: Path, file: TextIO) -> Iterator[str]:
    number = size = 0
    while line := file.readline(_LONGEST_SENTENCE + 1):
        number += 1
        size += len(line)
        sentence = line.strip()
        if len(line.removesuffix("\n")) > _LONGEST_SENTENCE:
            raise TrainingError(f"{path}, line {number}: longer than {_LONGEST_SENTENCE} characters")
        if size > _LARGEST_TEXT:
            raise TrainingError(f"{path}: more than {_LARGEST_TEXT:,} characters")
        if not sentence.isprintable():
            raise TrainingError(f"{path}, line {number}: holds an unprintable character")
        if sentence:
            yield sentence
