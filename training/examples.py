"""Makes examples of the sampler's draws: the same for the same seed, epoch and draw."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audio.samples import Samples
from models.config import ModelConfig
from training.attention_vocabulary import TrainingVocabulary
from training.augment import Augmenter
from training.clip import Clip
from training.decoded import DecodedTakes
from training.errors import ManifestError
from training.sampler import Draw
from training.spec_augment import Mask, draw_masks
from training.student import FRONT_END
from training.takes import Take
from training.transcripts import labels_of
from transcripts.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Example:
    """A clip with its targets."""

    samples: Samples  # float32 [n]
    masked_frames: Mask  # features that SpecAugment masks, [n // hop]
    masked_mels: Mask  # bands that it masks, [mels]
    tokens: NDArray[np.int64]  # labels of the transcript, int64 [labels]
    sequence: NDArray[np.int64]  # prompt, transcript and end for an attention decoder, int64; empty without one


class Examples:
    """Makes examples from takes. Threads may share it.

    Attributes:
        takes: the takes.
    """

    def __init__(
        self,
        takes: Sequence[Take],
        vocabulary: TrainingVocabulary,
        augmenter: Augmenter,
        seed: int,
        config: ModelConfig,
    ) -> None:
        """Prepare to make examples for a model."""
        self.takes = takes
        self._vocabulary = vocabulary
        self._augmenter = augmenter
        self._seed = seed
        self._mels = config.features.mels
        self._positions = config.attention.positions if config.attention else None
        self._decoded = DecodedTakes()

    def make(self, epoch: int, draw: Draw) -> Example:
        """Return the example of a draw.

        Raises:
            ManifestError: if its clip cannot be used; the message says why.
        """
        take = self.takes[draw.take]
        random = np.random.default_rng([self._seed, epoch, draw.take, draw.copy])
        if take.clip.text is None:
            raise ManifestError(f"{take.clip} has no transcript")
        samples = self._decoded.samples(take)
        samples = self._augmenter.augmented(samples, random)
        features = len(samples) // FRONT_END.hop
        masks = draw_masks(features, self._mels, self._augmenter.config.spec_augment, random)
        tokens, sequence = self._labels(take.clip, take.clip.text)
        if self._positions and len(sequence) > self._positions:
            raise ManifestError(
                f"{take.clip} has {len(sequence)} labels with its prompt; the decoder has {self._positions} positions"
            )
        return Example(samples, *masks, tokens, sequence)

    def silence(self) -> Example:
        """Return a second of silence with an empty transcript."""
        features = FRONT_END.sample_rate // FRONT_END.hop
        tokens, sequence = self._labels(replace(self.takes[0].clip, prompt=Prompt()), "")
        return Example(
            samples=np.zeros(FRONT_END.sample_rate, dtype=np.float32),
            masked_frames=np.zeros(features, dtype=np.bool_),
            masked_mels=np.zeros(self._mels, dtype=np.bool_),
            tokens=tokens,
            sequence=sequence,
        )

    def _labels(self, clip: Clip, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        tokens, sequence = labels_of(clip, text, self._vocabulary)
        return np.asarray(tokens, dtype=np.int64), np.asarray(sequence, dtype=np.int64)
