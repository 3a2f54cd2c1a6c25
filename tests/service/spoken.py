"""Long recordings for tests: real clips in a row with silence and noise between, and their words."""

import difflib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from tests.service.serving import ServerProcess, form

RATE = 16_000
_ABOUT_SECONDS = 1.0


@dataclass(frozen=True)
class Clip:
    """A recording of one utterance, and its text."""

    file: bytes
    samples: np.ndarray
    text: str


@dataclass(frozen=True)
class Heard:
    """A word and when it begins, in seconds."""

    word: str
    start: float


def clips_of(folder: Path, sources: Sequence[str]) -> list[Clip]:
    """The dev clips of these collections, shuffled."""
    manifest = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    chosen = [clip for clip in manifest if clip["split"] == "dev" and clip["source"] in sources]
    np.random.default_rng(3).shuffle(chosen)
    clips = []
    for clip in chosen:
        samples, rate = soundfile.read(folder / clip["audio"], dtype="float32")
        assert rate == RATE
        clips.append(Clip((folder / clip["audio"]).read_bytes(), samples, clip["text"]))
    return clips


def in_a_row(clips: Sequence[Clip], seconds: float) -> tuple[np.ndarray, list[tuple[Clip, float]]]:
    """Clips one after another, repeated up to a length in seconds, and the second at which each begins."""
    random = np.random.default_rng(4)
    pieces: list[np.ndarray] = []
    begun: list[tuple[Clip, float]] = []
    length = 0
    while length < seconds * RATE:
        clip = clips[len(begun) % len(clips)]
        level = random.choice([0.0, 0.0005, 0.005])
        gap = random.normal(0, level, int(random.uniform(0.1, 3.0) * RATE)).astype(np.float32)
        begun.append((clip, length / RATE))
        pieces += [clip.samples, gap]
        length += len(clip.samples) + len(gap)
    return np.concatenate(pieces), begun


def heard_in(service: ServerProcess, file: bytes) -> list[Heard]:
    """The words that the service finds in a file."""
    answer = service.client.post(
        "/v1/audio/transcriptions",
        **form(file, response_format="verbose_json", timestamp_granularities="word"),
        timeout=3600,
    )
    assert answer.status_code == 200, answer.text
    words = [Heard(word["word"], word["start"]) for word in answer.json()["words"]]
    assert answer.json()["text"].split() == [heard.word for heard in words]
    return words


def equal_words(expected: Sequence[Heard], heard: Sequence[Heard]) -> list[tuple[Heard, Heard]]:
    """Pairs of words that are in both, in order, and at about the expected time."""
    starts = [word.start for word in heard]
    first = bisect_left(starts, expected[0].start - _ABOUT_SECONDS) if expected else 0
    last = bisect_right(starts, expected[-1].start + _ABOUT_SECONDS) if expected else 0
    near = heard[first:last]
    matcher = difflib.SequenceMatcher(
        None, [word.word for word in expected], [word.word for word in near], autojunk=False
    )
    return [
        (expected[block.a + n], near[block.b + n]) for block in matcher.get_matching_blocks() for n in range(block.size)
    ]


def repeated(words: Sequence[Heard]) -> int:
    """How many words, or pairs of words, come twice in a row."""
    texts = [heard.word for heard in words]
    return sum(
        texts[n : n + size] == texts[n + size : n + 2 * size]
        for size in (1, 2)
        for n in range(len(texts) - 2 * size + 1)
    )


def peak_megabytes(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10
