"""Takes: a take is a clip at one speed, the unit of posteriors, sampling and examples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.resample import resampled
from audio.samples import Samples
from training.errors import ManifestError, RecipeError
from training.manifest import Clip, read_manifest
from training.recipe import TrainingData

# Allowed difference of a manifest's duration and the decoded length, because codecs pad and writers round.
_TOLERATED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Take:
    """A clip with its speed changed by a factor; the pitch changes too (Ko et al., 2015)."""

    clip: Clip
    speed: float = 1.0

    @property
    def seconds(self) -> float:
        """Its length by the manifest and the speed."""
        return self.clip.seconds / self.speed

    @property
    def name(self) -> str:
        """Its unique name among the takes of its manifest."""
        return f"{self.clip.name}@{self.speed:g}"

    def samples(self, rate: int) -> Samples:
        """Decode the take to mono samples at ``rate``.

        Raises:
            ManifestError: if it does not decode, or is not as long as the manifest says.
        """
        limits = AudioLimits(max_seconds=self.clip.seconds + _TOLERATED_SECONDS)
        try:
            with self.clip.audio.open("rb") as file:
                audio = decode(file, rate=rate, limits=limits)
        except AudioError as error:
            raise ManifestError(f"{self.clip.audio}: {error}") from error
        except OSError as error:
            raise ManifestError(f"{self.clip.audio}: {error.strerror or error}") from error
        if audio.seconds < self.clip.seconds - _TOLERATED_SECONDS:
            raise ManifestError(f"{self.clip.audio} lasts {audio.seconds:.2f} s, and not {self.clip.seconds:.2f} s")
        if self.speed == 1:
            return audio.samples
        return np.concatenate(list(resampled([audio.samples], round(rate * self.speed), rate)))


def read_clips(data: TrainingData) -> list[Clip]:
    """Return the clips of a recipe's manifests.

    Raises:
        ManifestError: if a manifest cannot be read.
    """
    return [clip for manifest in data.manifests for clip in read_manifest(manifest, data.split)]


def takes_of(clips: Sequence[Clip], data: TrainingData) -> list[Take]:
    """Return the takes of a recipe: each clip at each speed, except those that are too short or too long.

    Raises:
        RecipeError: if no clip is left.
    """
    takes = list(fitting(clips, data))
    if not takes:
        raise RecipeError(f"no clip lasts from {data.min_seconds:g} to {data.max_seconds:g} s")
    return takes


def fitting(clips: Iterable[Clip], data: TrainingData) -> Iterable[Take]:
    """Yield each clip at each speed at which it is neither too short nor too long."""
    for clip in clips:
        for speed in data.speeds:
            take = Take(clip, speed)
            if data.min_seconds <= take.seconds <= data.max_seconds:
                yield take
