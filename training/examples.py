"""Makes examples of the sampler's draws: the same for the same seed, epoch and draw."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audio.samples import Samples
from models.prompt import Prompt
from training.augment import augmented
from training.decoded import DecodedTakes
from training.distillation import FrameTargets, merged
from training.errors import ManifestError
from training.labelling import TeacherPosteriors
from training.posteriors import TeacherFrames
from training.recipe import Augmentation
from training.sampler import Draw
from training.spec_augment import Mask, draw_masks
from training.splice import Splicer, Spoken
from training.student import FRONT_END
from training.takes import Take
from training.transcripts import Transcripts
from training.vocabulary import TrainingVocabulary


@dataclass(frozen=True, slots=True)
class Example:
    """A clip with its targets.

    Attributes:
        samples: float32 [n].
        masked_frames: features that SpecAugment masks, [n // hop].
        masked_mels: bands that it masks, [mels].
        stretch: factor of the clip's frequencies.
        tokens: labels of the transcript, int64 [labels].
        sequence: prompt, transcript and end for an attention decoder, int64; empty without one.
        targets: the teacher's targets at the student's frame rate, or None.
    """

    samples: Samples
    masked_frames: Mask
    masked_mels: Mask
    stretch: float
    tokens: NDArray[np.int64]
    sequence: NDArray[np.int64]
    targets: FrameTargets | None


class Examples:
    """Makes examples from takes. Threads may share it.

    Attributes:
        takes: the takes.
        transcripts: makes labels of transcripts.
    """

    def __init__(
        self,
        takes: Sequence[Take],
        vocabulary: TrainingVocabulary,
        augmentation: Augmentation,
        seed: int,
        posteriors: TeacherPosteriors | None,
        mels: int,
        positions: int | None = None,
    ) -> None:
        """Prepare to make examples.

        Args:
            takes: the takes that draws refer to.
            vocabulary: the vocabulary of transcripts.
            augmentation: the augmentation of clips.
            seed: seed of the augmentation.
            posteriors: the teacher's posteriors, or None without a teacher.
            mels: bands of the features.
            positions: most labels of a sequence for an attention decoder, or None without one.
        """
        self.takes = takes
        self.transcripts = Transcripts(vocabulary)
        self._augmentation = augmentation
        self._seed = seed
        self._posteriors = posteriors
        self._mels = mels
        self._positions = positions
        self._decoded = DecodedTakes()
        self._splicer = None
        if augmentation.splice and posteriors:
            self._splicer = Splicer(takes, posteriors, augmentation.splice, self._decoded)

    def make(self, epoch: int, draw: Draw) -> Example:
        """Return the example of a draw.

        Raises:
            ManifestError: if its clip cannot be used; the message says why.
        """
        take = self.takes[draw.take]
        random = np.random.default_rng([self._seed, epoch, draw.take, draw.copy])
        spoken = (self._splicer and self._splicer.spoken(take, random)) or self._as_it_is(take)
        samples = augmented(spoken.samples, FRONT_END.sample_rate, self._augmentation, random)
        features = len(samples) // FRONT_END.hop
        masked_frames, masked_mels = self._masks(features, random)
        stretch = self._stretch(random)
        tokens = np.asarray(self.transcripts.tokens(take.clip, spoken.text), dtype=np.int64)
        targets = None if spoken.frames is None else self._targets(spoken.frames, features, take)
        sequence = np.asarray(self.transcripts.sequence(take.clip, tokens.tolist()), dtype=np.int64)
        if self._positions and len(sequence) > self._positions:
            raise ManifestError(
                f"{take.clip} has {len(sequence)} labels with its prompt; the decoder has {self._positions} positions"
            )
        return Example(samples, masked_frames, masked_mels, stretch, tokens, sequence, targets)

    def silence(self) -> Example:
        """Return a second of silence with an empty transcript."""
        features = FRONT_END.sample_rate // FRONT_END.hop
        clip = replace(self.takes[0].clip, prompt=Prompt())
        return Example(
            samples=np.zeros(FRONT_END.sample_rate, dtype=np.float32),
            masked_frames=np.zeros(features, dtype=np.bool_),
            masked_mels=np.zeros(self._mels, dtype=np.bool_),
            stretch=1.0,
            tokens=np.empty(0, dtype=np.int64),
            sequence=np.asarray(self.transcripts.sequence(clip, []), dtype=np.int64),
            targets=None,
        )

    def _as_it_is(self, take: Take) -> Spoken:
        """Return a take, not spliced, with its transcript or else the teacher's."""
        text = take.clip.text
        if text is None:
            if self._posteriors is None:
                raise ManifestError(f"{take.clip} has no transcript, and no teacher makes one")
            transcript = self._posteriors.transcript(take.clip)
            if transcript is None:
                raise ManifestError(f"{take.clip} could not be read when the teacher labelled the clips")
            text = transcript
        frames = self._posteriors.of(take) if self._posteriors else None
        return Spoken(self._decoded.samples(take), text, frames)

    def _masks(self, features: int, random: np.random.Generator) -> tuple[Mask, Mask]:
        config = self._augmentation.spec_augment
        if config is None:
            return np.zeros(features, dtype=np.bool_), np.zeros(self._mels, dtype=np.bool_)
        return draw_masks(features, self._mels, config, random)

    def _stretch(self, random: np.random.Generator) -> float:
        """Draw a factor of the frequencies, uniform on a logarithmic scale."""
        config = self._augmentation.vocal_tract
        return 1.0 if config is None else float(np.exp(random.uniform(*np.log(config.factors))))

    def _targets(self, frames: TeacherFrames, features: int, take: Take) -> FrameTargets:
        """Return the teacher's targets of a take with ``features`` features, at the student's frame rate."""
        assert self._posteriors, "only a teacher gives frames"
        targets = merged(frames, self._posteriors.ratio)
        if len(targets.blank) != self._posteriors.frames_of(features):
            raise ManifestError(
                f"{take.clip} has changed since the teacher labelled it; remove {self._posteriors.folder}"
            )
        return targets
