"""Reading sentences: a text file with one on each line, or the transcripts of a manifest."""

from pathlib import Path

from training.errors import TrainingError
from training.manifest import clips_of

_OF_MANIFESTS = {".json", ".jsonl"}


def read_sentences(path: Path) -> list[str]:
    """Return the sentences of a UTF-8 file, one a line, without empty lines.

    Of a manifest (a folder, or a file with ``.json`` or ``.jsonl`` in its name; training/manifest.py), the sentences
    are the transcripts.

    Raises:
        TrainingError: if it cannot be read, or holds no sentence.
    """
    if path.is_dir() or _OF_MANIFESTS.intersection(path.suffixes):
        lines = [clip.text or "" for clip in clips_of(path)]
    else:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()  # editors on Windows begin it with a mark
        except UnicodeDecodeError as error:
            raise TrainingError(f"{path}: not a text file") from error
        except OSError as error:
            raise TrainingError(f"{path}: {error.strerror or error}") from error
    sentences = [" ".join(words) for line in lines if (words := line.split())]
    if not sentences:
        raise TrainingError(f"{path} has no sentences")
    return sentences
