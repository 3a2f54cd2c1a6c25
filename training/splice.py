"""Splicing: new clips from phrases of several clips of one speaker, or of one source if its speakers are unknown.

Takes at another speed have another pitch, and are another voice.

A few hours of speech hold a few thousand sentences, which a model memorises. Spliced phrases are new sentences each
time (compare Lam et al., 2021). A clip is cut where its teacher finds the end of a word and the audio is quiet, and
phrases are used where the teacher's words equal the transcript's.
"""

import difflib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audio.samples import Samples
from models.text.tokenizers import WORD_START
from training.decoded import DecodedTakes
from training.distillation import greedy_spans
from training.labelling import TeacherPosteriors
from training.posteriors import TeacherFrames
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
    """A clip before augmentation.

    Attributes:
        samples: float32 [n].
        text: its transcript.
        frames: the teacher's frames, or None.
    """

    samples: Samples
    text: str
    frames: TeacherFrames | None


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words of a clip that can be cut out: the teacher's frames from ``start`` up to ``end``."""

    start: int
    end: int
    words: tuple[str, ...]


class Splicer:
    """Splices clips of a speaker. Threads may share it."""

    def __init__(
        self, takes: Sequence[Take], posteriors: TeacherPosteriors, config: Splice, decoded: DecodedTakes
    ) -> None:
        """Prepare to splice; only takes with the teacher's frames are cut."""
        self._posteriors = posteriors
        self._config = config
        self._decoded = decoded
        self._found: dict[Take, list[Phrase]] = {}
        of_voice: dict[tuple[str, str, float], list[Take]] = defaultdict(list)
        for take in takes:
            if posteriors.of(take) is not None:
                of_voice[_voice(take)].append(take)
        self._of_voice = {
            voice: found for voice, found in of_voice.items() if len({take.clip for take in found}) >= config.clips
        }

    def spoken(self, take: Take, random: np.random.Generator) -> Spoken | None:
        """Return a spliced clip in place of a take, not longer than it, or None to use the take itself."""
        others = self._of_voice.get(_voice(take))
        if not others or random.random() >= self._config.share:
            return None
        room = int(take.seconds * FRONT_END.sample_rate) // self._posteriors.frame_samples
        cut = list(self._phrases_of(others, room, random))
        if sum(len(phrase.samples) for phrase in cut) < take.seconds * FRONT_END.sample_rate / 2:
            return None
        return Spoken(
            np.concatenate([phrase.samples for phrase in cut]),
            " ".join(phrase.text for phrase in cut),
            np.concatenate([phrase.frames for phrase in cut if phrase.frames is not None]),
        )

    def _phrases_of(self, others: Sequence[Take], room: int, random: np.random.Generator) -> Iterator[Spoken]:
        """Yield phrases of random clips that together have ``room`` frames of the teacher at most."""
        frames_a_second = FRONT_END.sample_rate / self._posteriors.frame_samples
        low, high = (seconds * frames_a_second for seconds in self._config.seconds)
        for _ in range(_TRIES):
            take = others[int(random.integers(len(others)))]
            samples = self._decoded.samples(take)
            found = self._phrases(take, samples)
            if not found:
                continue
            first = last = int(random.integers(len(found)))
            wanted = random.uniform(low, high)
            while found[last].end - found[first].start < wanted and _is_followed(found, last):
                last += 1
            start, end = found[first].start, found[last].end
            if end - start <= room:
                room -= end - start
                yield self._cut(take, samples, start, end, found[first : last + 1])

    def _phrases(self, take: Take, samples: Samples) -> list[Phrase]:
        """Return the phrases of a take, which are found once."""
        if take not in self._found:
            self._found[take] = phrases(samples, take, self._posteriors)
        return self._found[take]

    def _cut(self, take: Take, samples: Samples, start: int, end: int, spoken: Sequence[Phrase]) -> Spoken:
        frames = self._posteriors.of(take)
        assert frames is not None, "phrases are cut where words end by the teacher's frames"
        cut = samples[start * self._posteriors.frame_samples : end * self._posteriors.frame_samples].copy()
        fade = np.linspace(0, 1, min(_FADE, len(cut)), dtype=np.float32)
        cut[: len(fade)] *= fade
        cut[len(cut) - len(fade) :] *= fade[::-1]
        text = " ".join(word for phrase in spoken for word in phrase.words)
        return Spoken(cut, text, frames[start:end])


def phrases(samples: Samples, take: Take, posteriors: TeacherPosteriors) -> list[Phrase]:
    """Return the phrases of a take whose words all equal the teacher's.

    Args:
        samples: samples of the take, float32 [n].
        take: a take with the teacher's frames.
        posteriors: the teacher's.
    """
    frames = posteriors.of(take)
    if frames is None:
        return []
    words = _words(frames, posteriors.pieces)
    if not words:
        return []
    quiet = _QUIET * float(np.sqrt(np.mean(np.square(samples))))
    cuts, firsts = [0], [0]
    for number, ((_, _, before), (_, after, _)) in enumerate(itertools.pairwise(words), start=1):
        levels = [_level(samples, frame * posteriors.frame_samples) for frame in range(before + 1, after + 1)]
        if min(levels) <= quiet:
            cuts.append(before + 1 + int(np.argmin(levels)))
            firsts.append(number)
    cuts.append(min(len(frames), len(samples) // posteriors.frame_samples))
    firsts.append(len(words))
    spoken = [word for word, _, _ in words]
    understood = _understood(spoken, take.clip.text)
    return [
        Phrase(start, end, tuple(spoken[first:last]))
        for (start, end), (first, last) in zip(itertools.pairwise(cuts), itertools.pairwise(firsts), strict=True)
        if end > start and understood(first, last)
    ]


def _understood(spoken: Sequence[str], text: str | None) -> Callable[[int, int], bool]:
    """Return a function that finds whether the teacher's words from one index up to another are right."""
    written = spoken if text is None else text.split()
    wrong, missed = set[int](), set[int]()
    for kind, first, last, *_ in difflib.SequenceMatcher(None, spoken, written, autojunk=False).get_opcodes():
        if kind == "insert":
            missed.add(first)
        elif kind != "equal":
            wrong.update(range(first, last))
    # A word that the teacher missed may be on either side of a cut.
    return lambda first, last: wrong.isdisjoint(range(first, last)) and missed.isdisjoint(range(first, last + 1))


def _words(frames: TeacherFrames, pieces: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return a teacher's words, each with its first and last frame."""
    words: list[tuple[str, int, int]] = []
    for label, first, last in greedy_spans(frames):
        piece = pieces[label]
        if piece.startswith(WORD_START) or not words:
            words.append((piece.removeprefix(WORD_START), first, last))
        else:
            word, begin, _ = words[-1]
            words[-1] = (word + piece, begin, last)
    return [word for word in words if word[0]]


def _level(samples: Samples, middle: int) -> float:
    around = samples[max(0, middle - _AROUND) : middle + _AROUND]
    return float(np.sqrt(np.mean(np.square(around)))) if len(around) else 0.0


def _is_followed(found: Sequence[Phrase], number: int) -> bool:
    """Return whether the next phrase begins where this one ends."""
    return number + 1 < len(found) and found[number + 1].start == found[number].end


def _voice(take: Take) -> tuple[str, str, float]:
    return take.clip.source, take.clip.speaker, take.speed
