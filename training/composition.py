"""Composed sound: rows of one length out of clips, so that a batch has no padding; no transcript is needed.

A batch is a function of the seed and the step, so that a run resumes from its step.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from audio.samples import Samples
from training.ahead import ahead
from training.augment import Augmenter
from training.batch import Batch, collate
from training.decoded import DecodedTakes
from training.errors import ManifestError
from training.examples import Example
from training.recipe import Recipe
from training.sampler import Position
from training.spec_augment import draw_masks
from training.student import FRONT_END
from training.take_index import TakeIndex

# Clips are brought to this loudness (root mean square), but quiet ones are not made louder without end.
_LOUDNESS, _LEAST_LOUDNESS = 0.08, 1e-2
# Seconds, shortest and longest: of silence after a clip, of a fragment.
_GAP, _FRAGMENT = (0.0, 0.5), (0.4, 2.0)
# Chance that the voice changes after a fragment, and that a row begins within a clip.
_OTHER_VOICE, _WITHIN = 0.1, 0.5
# Draws of a clip that cannot be read before a row is given up.
_TRIES = 10

Random = np.random.Generator


class Composer:
    """Composes the batches of a run. Threads may share it."""

    def __init__(self, takes: TakeIndex, recipe: Recipe, mels: int, augmenter: Augmenter) -> None:
        """Prepare to compose; a voice is drawn as often as its share of the audio says, by the recipe's weights."""
        assert recipe.teacher, "composed sound is for a teacher"
        self._takes, self._recipe, self._config, self._mels = takes, recipe, recipe.teacher.composition, mels
        self._augmenter = augmenter
        # The takes of each voice, and how likely each voice and each of its takes are.
        _, voice, sizes = np.unique(takes.speakers, return_inverse=True, return_counts=True)
        self._of_voice = np.split(np.argsort(voice, kind="stable"), np.cumsum(sizes)[:-1])
        audio = np.bincount(voice, takes.weights(recipe.data.weights) * takes.seconds)
        self._voices = audio / audio.sum()
        self._decoded = DecodedTakes()

    def batches(self, start: Position, own: range, *, pins: bool = False) -> Generator[Batch, None, None]:
        """Yield the parts ``own`` of each step without end, from the step at ``start``; pinned if a GPU is there."""

        def plans() -> Iterator[tuple[int, int]]:
            return ((step, part) for step in count(start.batch) for part in own)

        def one(plan: tuple[int, int]) -> Batch:
            batch = self.batch(*plan)
            return batch.pinned() if pins else batch

        return ahead(one, plans())

    def batch(self, step: int, part: int) -> Batch:
        """Return a part of a step; all parts of a step are of one length.

        If no clip can be read, it holds silence.
        """
        seconds = float(np.random.default_rng([self._recipe.seed, step]).choice(self._config.lengths))
        random = np.random.default_rng([self._recipe.seed, step, part])
        rows, samples = max(1, round(self._recipe.batches.seconds / seconds)), round(seconds * FRONT_END.sample_rate)
        skipped: list[str] = []
        made = [self._example(samples, random, skipped.append) for _ in range(rows)]
        batch = collate(made, Position(0, step), samples)
        batch = replace(batch, skipped=tuple(skipped), part=part)
        is_silence = not any(one.samples.any() for one in made)
        return replace(batch, is_silence=True, audio_seconds=0.0) if is_silence else batch

    def _example(self, samples: int, random: Random, skip: Callable[[str], None]) -> Example:
        """Return a row as an example without labels; silence if no clip can be read."""
        try:
            row = self._row(samples, random, skip)
        except ManifestError as error:
            skip(str(error))
            row = np.zeros(samples, np.float32)
        masks = draw_masks(samples // FRONT_END.hop, self._mels, self._augmenter.config.spec_augment, random)
        nothing = np.empty(0, np.int64)
        return Example(row, *masks, tokens=nothing, sequence=nothing)

    def _row(self, samples: int, random: Random, skip: Callable[[str], None]) -> Samples:
        """Return a row, float32 [samples]."""
        compose = self._pieces if random.random() < self._config.fragments else self._speech
        row = compose(samples, random, skip).astype(np.float32)
        return self._augmenter.augmented(row, random)

    def _speech(self, samples: int, random: Random, skip: Callable[[str], None]) -> Samples:
        """Return clips of one voice one after the other, at one speed, [samples]."""
        voice, speed = self._voice(random), self._speed(random)
        parts: list[Samples] = []
        missing = samples
        while missing > 0:
            clip = at_speed(self._clip(voice, random, skip), speed)
            if not parts and random.random() < _WITHIN:
                clip = clip[int(random.integers(max(1, len(clip) - FRONT_END.sample_rate // 2))) :]
            parts += [clip, np.zeros(_drawn(_GAP, random), np.float32)]
            missing -= len(parts[-2]) + len(parts[-1])
        return np.concatenate(parts)[:samples]

    def _pieces(self, samples: int, random: Random, skip: Callable[[str], None]) -> Samples:
        """Return fragments of clips, which make sentences that were never said, [samples]."""
        voice, speed = self._voice(random), self._speed(random)
        parts: list[Samples] = []
        missing = samples
        while missing > 0:
            clip, length = self._clip(voice, random, skip), _drawn(_FRAGMENT, random)
            begin = int(random.integers(max(1, len(clip) - length)))
            parts.append(at_speed(clip[begin : begin + length], speed))
            missing -= len(parts[-1])
            if random.random() < _OTHER_VOICE:
                voice = self._voice(random)
        return np.concatenate(parts)[:samples]

    def _voice(self, random: Random) -> NDArray[np.int64]:
        """Draw a voice; return its takes."""
        return self._of_voice[int(random.choice(len(self._voices), p=self._voices))]

    def _speed(self, random: Random) -> float:
        return float(np.exp(random.uniform(*np.log(self._config.speeds))))

    def _clip(self, voice: NDArray[np.int64], random: Random, skip: Callable[[str], None]) -> Samples:
        """Return a clip of a voice, at one loudness.

        Raises:
            ManifestError: if none of several clips can be read.
        """
        for _ in range(_TRIES):
            try:
                samples = self._decoded.samples(self._takes[int(random.choice(voice))])
            except ManifestError as error:
                skip(str(error))
                continue
            loudness = float(np.sqrt(np.mean(np.square(samples)))) if len(samples) else 0.0
            louder: Samples = samples * np.float32(_LOUDNESS / max(_LEAST_LOUDNESS, loudness))
            return louder
        raise ManifestError(f"{self._takes[int(voice[0])].clip}: no clip of this voice can be read")


def at_speed(samples: Samples, speed: float) -> Samples:
    """Return samples played at another speed, by linear interpolation; at least one."""
    places = np.arange(max(1, int(len(samples) / speed))) * speed
    played: Samples = np.interp(places, np.arange(len(samples)), samples).astype(np.float32)
    return played


def _drawn(seconds: tuple[float, float], random: Random) -> int:
    """Draw a number of samples within bounds in seconds."""
    return int(random.uniform(*seconds) * FRONT_END.sample_rate)
