"""Training clips from recordings in public repositories, in addition to a corpus.

docs/bundled-model.md lists the repositories with contents, licences and commits.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.samples import Samples
from training.errors import ManifestError
from training.replaced import replaced
from training.student import FRONT_END

_RATE = FRONT_END.sample_rate
_LONGEST = 17.0
# Most silence that is kept before and after speech.
_EDGE = _RATE // 4
# 25 ms are silent if their power is below this share of the loudest 25 ms.
_SILENT = 1e-4
# A recording whose loudest 25 ms have less power is skipped.
_NOTHING = 1e-5
_WORDS = re.compile(r"[a-z' ]+")


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of a repository: the name of the clip, its speaker, and its transcript if that is known."""

    path: Path
    name: str
    speaker: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The corpus that clips are added to.

    These are sources and names of its clips, without suffix; the speakers of its split ``train`` and of no other; and
    of its other splits the names of clips and the sentences.
    """

    names: frozenset[tuple[str, str]]
    speakers: frozenset[str]
    kept: frozenset[str]
    sentences: frozenset[str]


@dataclass(frozen=True, slots=True)
class Repository:
    """A public repository: its check-out, the source and the least length of its clips, and what lists them."""

    folder: str
    source: str
    min_seconds: float
    recordings: Callable[[Path, Known], Iterator[Recording]]


def collect(checkouts: Path, corpus: Path, out: Path) -> dict[str, float]:
    """Write clips, 16 kHz FLAC without long silence at their edges, and a manifest of them; return seconds by source.

    Check-outs that are missing are left out, and so are clips of the corpus. Of speechocean762, only speakers of its
    split ``train`` and of no other are taken. Sentences of its other splits are left out where a text or, of LJ Speech,
    a number says what a recording's sentence is.

    Raises:
        ManifestError: if the corpus has no manifest, or a damaged one, or no repository was found.
        OSError: if a file cannot be read or written.
    """
    known = _known(corpus / "manifest.jsonl")
    there = [repository for repository in REPOSITORIES if (checkouts / repository.folder).is_dir()]
    if not there:
        raise ManifestError(f"{checkouts} holds none of {', '.join(one.folder for one in REPOSITORIES)}")
    seconds = {repository.source: 0.0 for repository in there}
    out.mkdir(parents=True, exist_ok=True)
    with replaced(out / "manifest.jsonl") as manifest:
        for repository in there:
            for recording in repository.recordings(checkouts / repository.folder, known):
                samples = _clip(recording.path)
                if repository.min_seconds * _RATE <= len(samples) <= _LONGEST * _RATE:
                    seconds[repository.source] += len(samples) / _RATE
                    manifest.write(_written(out, repository.source, recording, samples).encode())
    return seconds


def _known(manifest: Path) -> Known:
    names: set[tuple[str, str]] = set()
    speakers: set[str] = set()
    kept_speakers: set[str] = set()
    kept: set[str] = set()
    sentences: set[str] = set()
    number = 0
    try:
        with manifest.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007  # for the error
                clip = json.loads(line)
                names.add((clip["source"], Path(clip["audio"]).stem))
                if clip["split"] == "train":
                    speakers.add(clip["speaker"])
                else:
                    kept_speakers.add(clip["speaker"])
                    kept.add(Path(clip["audio"]).stem)
                    sentences.add(clip["text"])
    except OSError as error:
        raise ManifestError(f"{manifest}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{manifest}: not a text file") from error
    except (ValueError, KeyError, TypeError) as error:
        needed = "a clip needs audio, source, split and speaker, and text unless the split is train"
        raise ManifestError(f"{manifest}, line {number}: {needed}") from error
    return Known(frozenset(names), frozenset(speakers - kept_speakers), frozenset(kept), frozenset(sentences))


def _clip(path: Path) -> Samples:
    """Return a recording without the silence around it; empty if it is silent or does not decode."""
    try:
        with path.open("rb") as file:
            samples = decode(file, rate=_RATE, limits=AudioLimits()).samples
    except AudioError:
        return np.empty(0, np.float32)
    power = np.convolve(np.square(samples), np.full(400, 1 / 400, np.float32), "same")
    if not len(power) or power.max() < _NOTHING:
        return np.empty(0, np.float32)
    loud = np.flatnonzero(power > power.max() * _SILENT)
    return samples[max(0, int(loud[0]) - _EDGE) : int(loud[-1]) + _EDGE]


def _written(out: Path, source: str, recording: Recording, samples: Samples) -> str:
    """Write a clip, and return its line of the manifest."""
    audio = Path(source) / f"{re.sub(r'[^A-Za-z0-9_-]', '_', recording.name)}.flac"
    (out / source).mkdir(exist_ok=True)
    soundfile.write(out / audio, samples, _RATE, format="FLAC", subtype="PCM_16")
    fields = {
        "audio": str(audio),
        "duration": round(len(samples) / _RATE, 3),
        "speaker": recording.speaker,
        "source": source,
        "split": "train",
    }
    if recording.text:
        fields["text"] = recording.text
    return json.dumps(fields) + "\n"


def _speechocean(root: Path, known: Known) -> Iterator[Recording]:
    """Clips of the corpus's training speakers that it does not have."""
    texts = dict(
        line.split(maxsplit=1)
        for part in ("train", "test")
        for line in (root / part / "text").read_text(encoding="utf-8").splitlines()
    )
    for path in sorted(root.glob("WAVE/SPEAKER*/*.WAV")):
        speaker, text = f"so-{path.parent.name.removeprefix('SPEAKER')}", texts.get(path.stem, "").strip().lower()
        if speaker in known.speakers and ("speechocean", path.stem) not in known.names and text not in known.sentences:
            yield Recording(path, path.stem, speaker, text if _WORDS.fullmatch(text) else None)


def _intents(root: Path, known: Known) -> Iterator[Recording]:
    """Orders of coffee by over fifty speakers, without their names and texts."""
    del known
    for path in sorted(root.glob("data/speech/clean/*.wav")):
        yield Recording(path, path.stem, "intents")


def _asterisk(root: Path, known: Known) -> Iterator[Recording]:
    """Telephone prompts of one woman, 8 kHz, without their texts."""
    del known
    for path in sorted((root / "en").glob("**/*.wav")):
        if "silence" not in path.parts:
            yield Recording(path, str(path.relative_to(root / "en").with_suffix("")), "allison")


def _dctts(root: Path, known: Known) -> Iterator[Recording]:
    """LJ Speech sentences, read by a man. A recording has the name of the one in LJ Speech with its sentence."""
    for path in sorted(root.glob("LJSpeech-1.1/wavs/*.wav")):
        if ("dctts", path.stem) not in known.names and path.stem not in known.kept:
            yield Recording(path, path.stem, "dctts")


REPOSITORIES: Sequence[Repository] = (
    Repository("speechocean762", "speechocean", 1.0, _speechocean),
    Repository("speech-to-intent-benchmark", "intents", 1.0, _intents),
    Repository("asterisk-sounds", "asterisk", 1.5, _asterisk),
    Repository("dc_tts", "dctts", 1.0, _dctts),
)
