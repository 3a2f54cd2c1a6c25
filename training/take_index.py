"""The index of a run's takes, in files: each step reads the takes that it needs.

So memory grows by some tens of bytes a clip, whatever manifests, shards or folders list them. The folder has

- ``clips.jsonl``: the fields of the clips, a clip on each line;
- ``takes.bin``: a record of fixed size for each take, memory-mapped: its length, its labels, the place of its clip;
- ``index.json``: what the index was made from, and the survey of the clips. It is written last, so that an index is
  complete or missing.

A later run uses the index, unless the size or time of a manifest, a tar or a vocabulary has changed, or the recipe has
other data or another model: then it makes a new one.
"""

import hashlib
import json
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from models import Prompt
from models.config import ModelConfig
from training.attention_vocabulary import TrainingVocabulary
from training.clip import ByteRange, Clip
from training.errors import ManifestError, TrainingError
from training.manifest import clips_of, files_of, manifests_of
from training.recipe import Recipe
from training.replaced import replaced
from training.survey import Survey
from training.takes import Take, fitting
from training.transcripts import labels_of

_FORMAT = 4
_CLIPS, _TAKES, _ABOUT = "clips.jsonl", "takes.bin", "index.json"
_TAKE = np.dtype(
    [
        ("place", "<u8"),  # of the clip's line in clips.jsonl
        ("seconds", "<f8"),
        ("speed", "<f8"),
        ("speaker", "<u8"),  # a digest
        ("size", "<u4"),  # of the clip's line, in bytes
        ("labels", "<u4"),
        ("set", "<u4"),
    ]
)
# Fields of a clip's prompt that training knows: the languages and the punctuation.
_OF_CLIPS = 3
_DAMAGED = (OSError, ValueError, KeyError, TypeError)


class TakeIndex(Sequence[Take]):
    """The takes of a run, read from files. Threads may share it.

    Attributes:
        survey: lines about the clips, and about those that are left out.
        digest: identifies the takes, with their transcripts, in their order.
        seconds: the length of each take, [takes].
        labels: the number of its labels, its prompt included; 0 without a transcript.
        speakers: a number for its speaker, another one in another source.
        sets: the number of the recipe's manifest that lists it, from 0.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        """Open an index.

        Raises:
            OSError: if its files cannot be read.
        """
        self.survey = [str(line) for line in about["survey"]]
        self.digest = str(about["digest"])
        self._records = np.memmap(folder / _TAKES, _TAKE, "r")
        self.seconds, self.labels, self.speakers, self.sets = (
            np.asarray(self._records[name]) for name in ("seconds", "labels", "speaker", "set")
        )
        self._path = folder / _CLIPS
        self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)

    def weights(self, of_sets: Sequence[float] | None) -> NDArray[np.float64]:
        """Return how often an epoch has each take, [takes], by the weights of the recipe's manifests; None: once."""
        return np.ones(len(self)) if of_sets is None else np.asarray(of_sets)[self.sets]

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Take:  # type: ignore[override]  # slices are not asked for
        """Return a take.

        Raises:
            ManifestError: if the index is damaged.
        """
        record = self._records[index]
        line = os.pread(self._file, int(record["size"]), int(record["place"]))
        try:
            return Take(_clip(line), float(record["speed"]))
        except (ValueError, TypeError) as error:
            raise ManifestError(f"{self._path} is damaged; remove its folder, and it is made again") from error


def take_index(folder: Path, recipe: Recipe, vocabulary: TrainingVocabulary, config: ModelConfig) -> TakeIndex:
    """Return the takes of a recipe: each clip at each speed at which its length and its density of labels are allowed.

    An index that is in the folder is used if it still holds.

    Raises:
        TrainingError: if a manifest cannot be read, no clip is left, or the index cannot be written.
    """
    made_of = _made_of(recipe, config)
    try:
        about = json.loads((folder / _ABOUT).read_bytes())
        if about["made_of"] == made_of and about["tars"] == [_state(Path(path)) for path, *_ in about["tars"]]:
            sizes = [(folder / name).stat().st_size for name in (_CLIPS, _TAKES)]
            if about["sizes"] == sizes:
                return TakeIndex(folder, about)
    except _DAMAGED:
        pass  # there is none, or none that can be used
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _ABOUT).unlink(missing_ok=True)
        about = {"made_of": made_of, **_write(folder, recipe, vocabulary, config)}
        with replaced(folder / _ABOUT) as file:
            file.write(json.dumps(about).encode())
        return TakeIndex(folder, about)
    except OSError as error:
        raise TrainingError(f"{folder} cannot be written: {error.strerror or error}") from error


def _made_of(recipe: Recipe, config: ModelConfig) -> dict[str, Any]:
    """Return what decides about an index before the manifests are read, as JSON values."""
    decides = (recipe.data, recipe.characters, recipe.teacher is None, config)
    named = [recipe.vocabulary, recipe.initial, *(one.vocabulary for one in recipe.languages or ())]
    named += [recipe.teacher.checkpoint] if recipe.teacher else []
    try:
        lists = [file for _, manifest in _manifests(recipe) for file in files_of(manifest)]
    except OSError as error:
        raise ManifestError(f"{error.filename}: {error.strerror}") from error
    files = [_state(path) for path in [*lists, *filter(None, named)]]
    return {"format": _FORMAT, "recipe": hashlib.sha256(repr(decides).encode()).hexdigest(), "files": files}


def _state(path: Path) -> list[str | int]:
    """Return a file's path, size and time; without them if there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return [str(path)]
    return [str(path), found.st_size, found.st_mtime_ns]


def _write(folder: Path, recipe: Recipe, vocabulary: TrainingVocabulary, config: ModelConfig) -> dict[str, Any]:
    """Write the clips and the takes, and return what index.json says about them."""
    data = recipe.data
    survey = Survey(data, vocabulary, config, reads_texts=recipe.teacher is None)
    tars, digest = dict[Path, None](), hashlib.sha256()  # files that hold several recordings
    with replaced(folder / _CLIPS) as clips, replaced(folder / _TAKES) as takes:
        for number, clip in tqdm(_all_clips(recipe), desc="reading manifests", unit=" clips", disable=None):
            survey.note_clip(clip)
            found = fitting(clip, data)
            if found and clip.text is None and recipe.teacher is None:
                raise ManifestError(f"{clip} has no transcript, and no teacher makes one")
            tokens, sequence = labels_of(clip, clip.text or "", vocabulary) if found else ([], [])
            kept = [take for take in found if not survey.is_dense(take, len(tokens))]
            if not kept:
                continue
            line, labels = _line(clip), 0 if clip.text is None else len(sequence) or len(tokens)
            about = (_digest(clip.source, clip.speaker), len(line), labels, number)
            if clip.byte_range is not None:
                tars[clip.audio] = None
            for take in kept:
                survey.note_take(take, tokens, sequence)
                takes.write(np.array((clips.tell(), take.seconds, take.speed, *about), dtype=_TAKE).tobytes())
                digest.update(_identity(take).encode())
            clips.write(line)
        sizes = [clips.tell(), takes.tell()]
    return {
        "survey": survey.lines(),
        "digest": digest.hexdigest(),
        "sizes": sizes,
        "tars": [_state(tar) for tar in tars],
    }


def _all_clips(recipe: Recipe) -> Iterator[tuple[int, Clip]]:
    """Yield all clips, each with the number of the recipe's manifest that lists it."""
    for number, manifest in _manifests(recipe):
        for clip in clips_of(manifest, recipe.data.split):
            yield number, clip


def _manifests(recipe: Recipe) -> list[tuple[int, Path]]:
    return [(number, found) for number, path in enumerate(recipe.data.manifests) for found in manifests_of(path)]


def _line(clip: Clip) -> bytes:
    """Return a clip as a line."""
    values = {field.name: getattr(clip, field.name) for field in fields(clip)} | {"prompt": clip.prompt[:_OF_CLIPS]}
    content = json.dumps(list(values.values()), ensure_ascii=False, separators=(",", ":"), default=str)  # the path
    return content.encode(errors="surrogatepass") + b"\n"


def _clip(line: bytes) -> Clip:
    """Return the clip of a line.

    Raises:
        ValueError, TypeError: if the line is damaged.
    """
    audio, name, seconds, text, source, speaker, prompt, start, byte_range, where = json.loads(
        line.decode(errors="surrogatepass")
    )
    inside = ByteRange(*byte_range) if byte_range else None
    return Clip(Path(audio), name, seconds, text, source, speaker, Prompt(*prompt), start, inside, where)


def _identity(take: Take) -> str:
    """Return the fields of a take that identify it, as a line."""
    clip = take.clip
    return json.dumps([take.name, take.seconds, clip.text, clip.prompt[:_OF_CLIPS], clip.start]) + "\n"


def _digest(*names: str) -> int:
    content = "\0".join(names).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
