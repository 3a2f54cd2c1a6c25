"""New sentences out of recorded ones: phrases that a voice said in several clips, one after the other.

A few hours of speech hold a few thousand sentences, which a model learns by heart. Cut into phrases and put together
anew, they are other sentences every time they are heard (compare Lam et al., 2021). A clip is cut where its teacher
hears the end of a word, the voice is quiet, and what the teacher understood is what the transcript says.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from audio.resample import Samples
from models.tokenizers import WORD_START
from training.decoded import DecodedTakes
from training.distillation import greedy_spans
from training.labelling import TeacherLabels
from training.posteriors import Frames
from training.recipe import Splice
from training.student import FRONT_END
from training.takes import Take

# A cut is quiet if the 20 ms around it are this far below the clip's loudness, as a ratio of amplitudes.
_QUIET = 10 ** (-15 / 20)
_AROUND = 160
# Phrases fade in and out, so that a cut does not click.
_FADE = 80
_TRIES = 12


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is learned from, before it is augmented.

    Attributes:
        samples: float32 [n].
        text: what is said.
        frames: what the teacher thinks of it, or None if it did not hear it.
    """

    samples: Samples
    text: str
    frames: Frames | None


@dataclass(frozen=True, slots=True)
class Phrase:
    """A part of a clip that can be cut out: words between two frames of the teacher."""

    start: int
    end: int
    words: tuple[str, ...]


class Splicer:
    """Puts clips of a voice together anew. Threads may share it."""

    def __init__(self, takes: Sequence[Take], labels: TeacherLabels, config: Splice, decoded: DecodedTakes) -> None:
        """Prepare to splice; only clips that the teacher heard at their own speed are cut."""
        self._takes = takes
        self._labels = labels
        self._config = config
        self._decoded = decoded
        self._found: dict[Take, list[Phrase]] = {}
        self._of_voice: dict[tuple[str, str, float], list[Take]] = defaultdict(list)
        for take in takes:
            if labels.of(_own_speed(take)) is not None:
                self._of_voice[_voice(take)].append(take)

    def spoken(self, take: Take, random: np.random.Generator) -> Spoken | None:
        """Return what is said instead of a take, no longer than it, or None if it is to be heard as it is."""
        others = self._of_voice.get(_voice(take), [])
        if len(others) < self._config.clips or random.random() >= self._config.share:
            return None
        room = int(take.seconds * take.speed * FRONT_END.sample_rate) // self._labels.frame_samples
        parts = list(self._parts(others, room, random))
        if sum(len(part.samples) for part in parts) < take.seconds * FRONT_END.sample_rate / 2:
            return None
        heard = [part.frames for part in parts if part.frames is not None]
        return Spoken(
            np.concatenate([part.samples for part in parts]),
            " ".join(part.text for part in parts),
            np.concatenate(heard) if len(heard) == len(parts) else None,
        )

    def _parts(self, others: Sequence[Take], room: int, random: np.random.Generator) -> Iterator[Spoken]:
        """Yield phrases of random clips that together have ``room`` frames of the teacher at most."""
        low, high = (seconds * FRONT_END.sample_rate / self._labels.frame_samples for seconds in self._config.seconds)
        for _ in range(_TRIES):
            take = others[int(random.integers(len(others)))]
            samples = self._decoded.samples(take)
            found = self._phrases(take, samples)
            if not found:
                continue
            first = last = int(random.integers(len(found)))
            wanted = random.uniform(low, high)
            while last + 1 < len(found) and found[last].end - found[first].start < wanted:
                last += 1
            start, end = found[first].start, found[last].end
            if end - start <= room:
                room -= end - start
                yield self._cut(take, samples, start, end, found[first : last + 1])

    def _phrases(self, take: Take, samples: Samples) -> list[Phrase]:
        """Return the phrases of a take, which are looked for once."""
        if take not in self._found:
            self._found[take] = phrases(samples, take, self._labels)
        return self._found[take]

    def _cut(self, take: Take, samples: Samples, start: int, end: int, said: Sequence[Phrase]) -> Spoken:
        frames = self._labels.of(take)
        part = samples[_sample(start, take, self._labels) : _sample(end, take, self._labels)].copy()
        fade = np.linspace(0, 1, min(_FADE, len(part)), dtype=np.float32)
        part[: len(fade)] *= fade
        part[len(part) - len(fade) :] *= fade[::-1]
        text = " ".join(word for phrase in said for word in phrase.words)
        return Spoken(part, text, None if frames is None else frames[start:end])


def phrases(samples: Samples, take: Take, labels: TeacherLabels) -> list[Phrase]:
    """Return the phrases of a take that can be cut out; none if the teacher understood other words than it has.

    Args:
        samples: of the take, float32 [n].
        take: the take, of a clip that the teacher heard.
        labels: the teacher's.
    """
    frames = labels.of(_own_speed(take))
    if frames is None:
        return []
    words = _words(frames, labels.pieces)
    spoken = [word for word, _, _ in words]
    if not words or (take.clip.text is not None and take.clip.text.split() != spoken):
        return []
    quiet = _QUIET * float(np.sqrt(np.mean(np.square(samples))))
    cuts, firsts = [0], [0]
    for number, ((_, _, before), (_, after, _)) in enumerate(itertools.pairwise(words), start=1):
        levels = [_level(samples, _sample(frame, take, labels)) for frame in range(before + 1, after + 1)]
        if min(levels) <= quiet:
            cuts.append(before + 1 + int(np.argmin(levels)))
            firsts.append(number)
    cuts.append(min(len(frames), int(len(samples) * take.speed) // labels.frame_samples))
    firsts.append(len(words))
    return [
        Phrase(start, end, tuple(spoken[first:last]))
        for (start, end), (first, last) in zip(itertools.pairwise(cuts), itertools.pairwise(firsts), strict=True)
        if end > start
    ]


def _words(frames: Frames, pieces: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the words that a teacher understood, with the first and the last frame in which it heard each."""
    words: list[tuple[str, int, int]] = []
    for label, first, last in greedy_spans(frames):
        piece = pieces[label]
        if piece.startswith(WORD_START) or not words:
            words.append((piece.removeprefix(WORD_START), first, last))
        else:
            word, begin, _ = words[-1]
            words[-1] = (word + piece, begin, last)
    return [word for word in words if word[0]]


def _level(samples: Samples, place: int) -> float:
    around = samples[max(0, place - _AROUND) : place + _AROUND]
    return float(np.sqrt(np.mean(np.square(around)))) if len(around) else 0.0


def _sample(frame: int, take: Take, labels: TeacherLabels) -> int:
    """Return where a frame of the teacher, who heard the clip at its own speed, begins in a take of it."""
    return round(frame * labels.frame_samples / take.speed)


def _own_speed(take: Take) -> Take:
    return replace(take, speed=1.0)


def _voice(take: Take) -> tuple[str, str, float]:
    return take.clip.source, take.clip.speaker, take.speed
