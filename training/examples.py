"""From a draw of the sampler to what is learned from it. The same draw gives the same, whenever and in any order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audio.resample import Samples
from training.augment import augmented
from training.distillation import FrameTargets, merged
from training.errors import ManifestError
from training.labelling import TeacherLabels
from training.recipe import Augmentation
from training.sampler import Draw
from training.spec_augment import Mask, draw_masks
from training.student import FRONT_END
from training.takes import Take
from training.vocabulary import TrainingVocabulary


@dataclass(frozen=True, slots=True)
class Example:
    """A clip to learn from.

    Attributes:
        samples: float32 [n].
        hidden_frames: which of its features SpecAugment hides, [n // hop].
        hidden_mels: which of their bands it hides, [mels].
        tokens: labels of its transcript, int64.
        targets: what the teacher thinks of its frames, at the student's rate, or None if it did not hear it.
    """

    samples: Samples
    hidden_frames: Mask
    hidden_mels: Mask
    tokens: NDArray[np.int64]
    targets: FrameTargets | None


class Examples:
    """Makes examples out of takes. Threads may share it.

    Attributes:
        takes: what it makes them of.
    """

    def __init__(
        self,
        takes: Sequence[Take],
        vocabulary: TrainingVocabulary,
        augmentation: Augmentation,
        seed: int,
        labels: TeacherLabels | None,
    ) -> None:
        """Prepare to make examples.

        Args:
            takes: what draws are of.
            vocabulary: the labels of transcripts.
            augmentation: what is done to clips.
            seed: of what is done to clips.
            labels: the teacher's, or None without a teacher.

        Raises:
            ManifestError: if a clip has no transcript and no teacher heard it who could write one.
        """
        self.takes = takes
        self._vocabulary = vocabulary
        self._augmentation = augmentation
        self._seed = seed
        self._labels = labels
        for take in takes:
            if take.clip.text is None and (labels is None or labels.transcript(take.clip) is None):
                raise ManifestError(f"{take.clip.audio} has no transcript, and no teacher hears it")

    def make(self, epoch: int, draw: Draw) -> Example:
        """Return the example of a draw.

        Raises:
            ManifestError: if its audio cannot be read, or is not what the teacher heard.
        """
        take = self.takes[draw.take]
        random = np.random.default_rng([self._seed, epoch, draw.take, draw.copy])
        samples = augmented(take.samples(FRONT_END.sample_rate), FRONT_END.sample_rate, self._augmentation, random)
        features = len(samples) // FRONT_END.hop
        hidden_frames, hidden_mels = self._masks(features, random)
        tokens = np.asarray(self._tokens(take), dtype=np.int64)
        return Example(samples, hidden_frames, hidden_mels, tokens, self._targets(take, features))

    def _masks(self, features: int, random: np.random.Generator) -> tuple[Mask, Mask]:
        config = self._augmentation.spec_augment
        if config is None:
            return np.zeros(features, dtype=np.bool_), np.zeros(FRONT_END.mels, dtype=np.bool_)
        return draw_masks(features, FRONT_END.mels, config, random)

    def _tokens(self, take: Take) -> list[int]:
        """Return the labels of the transcript, or of the teacher's where there is none."""
        text = take.clip.text
        if text is None:
            assert self._labels, "clips without a transcript have a teacher"
            text = self._labels.transcript(take.clip) or ""
        return self._vocabulary.encode(text)

    def _targets(self, take: Take, features: int) -> FrameTargets | None:
        """Return what the teacher thinks of a take that has so many features."""
        frames = self._labels.of(take) if self._labels else None
        if self._labels is None or frames is None:
            return None
        targets = merged(frames, self._labels.ratio)
        if len(targets.blank) != self._labels.frames_of(features):
            raise ManifestError(f"{take.clip.audio} is not what the teacher heard; remove its labels")
        return targets
