"""Training clips: a JSON Lines manifest, or a folder of LibriSpeech."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models import Prompt
from training.errors import ManifestError
from training.librispeech import seconds_of, transcripts

_LONGEST_LINE = 2**20
_UNKNOWN_SECONDS = 1.0
# Keys of NeMo's manifests, and our names.
_OF_NEMO = {
    "audio_filepath": "audio",
    "source_lang": "language",
    "lang": "language",
    "target_lang": "target_language",
    "pnc": "punctuation",
}
# Values of true and false in NeMo's manifests.
_FLAGS = {"yes": True, "pnc": True, "true": True, "1": True, "no": False, "nopnc": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of one utterance.

    Attributes:
        audio: the file.
        name: its path in the manifest; the same when manifest and files are moved.
        seconds: its length as given in the manifest.
        text: its transcript, or None.
        source: the collection that it is from.
        speaker: its speaker; the source if that is not known.
        prompt: its prompt for an attention decoder: languages and punctuation.
    """

    audio: Path
    name: str
    seconds: float
    text: str | None
    source: str
    speaker: str
    prompt: Prompt = field(default_factory=Prompt)


def read_manifest(path: Path, split: str | None = None) -> list[Clip]:
    """Return the clips of a manifest, in its order.

    Args:
        path: a file with one JSON object a line: ``audio`` (relative to the manifest) and ``duration`` in seconds;
            ``text``, ``source``, ``speaker`` and ``split`` where they are known; for attention decoders ``language``,
            ``target_language`` and ``punctuation`` (true or false). NeMo's names of these keys are accepted too. Or a
            folder of LibriSpeech, whose sets are its splits and sources.
        split: only clips of this split; None takes all.

    Raises:
        ManifestError: if it cannot be read, or holds no such clip; the message names the line.
    """
    try:
        clips = list(_librispeech(path, split) if path.is_dir() else _clips(path, split))
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not a text file") from error
    if not clips:
        raise ManifestError(f"{path} has no clips" + (f" of split {split!r}" if split is not None else ""))
    return clips


def _clips(path: Path, split: str | None) -> Iterator[Clip]:
    with path.open(encoding="utf-8-sig") as file:  # editors on Windows begin a file with a byte order mark
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if not line.strip():
                continue
            try:
                fields = _fields(line)
            except (ValueError, RecursionError) as error:
                raise ManifestError(f"{path}, line {number}: {error}") from error
            if split in (None, fields.get("split")):
                yield _clip(path, fields)


def _librispeech(folder: Path, split: str | None) -> Iterator[Clip]:
    for audio, text, name, speaker in transcripts(folder):
        if split in (None, name):
            seconds = seconds_of(audio)
            # A file that cannot be read gets some length; it is reported and skipped when it is loaded.
            yield Clip(audio, audio.name, _UNKNOWN_SECONDS if seconds is None else seconds, text, name, speaker)


def _fields(line: str) -> Mapping[str, object]:
    """Parse a line, and check its types."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  # bad data, whatever the type
    fields = {_OF_NEMO.get(name, name): value for name, value in fields.items()}
    for name in ("audio", "duration"):
        if fields.get(name) is None:
            raise ValueError(f"{name!r} is missing")
    for name in ("audio", "text", "source", "speaker", "split", "language", "target_language"):
        value = fields.get(name)
        if not isinstance(value, str) and value is not None:
            raise ValueError(f"{name!r} must be a string")
    flag = str(fields.get("punctuation", True)).lower()
    if flag not in _FLAGS:
        raise ValueError("'punctuation' must be true or false")
    fields["punctuation"] = _FLAGS[flag]
    seconds = fields["duration"]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise ValueError("'duration' must be a number of seconds above 0")
    return fields


def _clip(manifest: Path, fields: Mapping[str, object]) -> Clip:
    source = str(fields.get("source") or manifest.stem)
    text = fields.get("text")
    return Clip(
        audio=manifest.parent / str(fields["audio"]),
        name=str(fields["audio"]),
        seconds=float(str(fields["duration"])),
        text=None if text is None else str(text),
        source=source,
        speaker=str(fields.get("speaker") or source),
        prompt=Prompt(_code(fields, "language"), _code(fields, "target_language"), bool(fields["punctuation"])),
    )


def _code(fields: Mapping[str, object], name: str) -> str | None:
    """Return the two-letter code of a language: en, also for en-US."""
    value = fields.get(name)
    return None if value is None else str(value).split("-")[0].lower()
