"""Takes: a take is a clip at one speed, the unit of sampling and examples."""

from dataclasses import dataclass

import numpy as np

from audio.resample import resampled
from audio.samples import Samples
from training.clip import Clip
from training.recipe import TrainingData


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
        """Its clip's name, and its speed."""
        return f"{self.clip.name}@{self.speed:g}"

    def samples(self, rate: int) -> Samples:
        """Decode the take to mono samples at ``rate``.

        Raises:
            ManifestError: if it does not decode, or is not as long as the manifest says.
        """
        samples = self.clip.samples(rate)
        if self.speed == 1:
            return samples
        return np.concatenate(list(resampled([samples], round(rate * self.speed), rate)))


def fitting(clip: Clip, data: TrainingData) -> list[Take]:
    """Return a clip at each speed at which it is neither too short nor too long."""
    takes = [Take(clip, speed) for speed in data.speeds]
    return [take for take in takes if data.min_seconds <= take.seconds <= data.max_seconds]
