"""The augmentation of a recipe, in frozen dataclasses; see training/recipe.py."""

from dataclasses import dataclass
from pathlib import Path

from training.recipe_bounds import within


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecAugment:
    """Masks over the features (Park et al., 2019)."""

    mel_masks: int = within(0, 10, default=2)  # masks over mel bands of a clip
    mel_width: int = within(0, 100, default=27)  # bands that such a mask may have at most
    time_masks: int = within(0, 50, default=5)  # masks over frames of a clip
    time_share: float = within(0, 1, default=0.05)  # share of a clip's frames that such a mask may have at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise that is added to a share of the clips, of a colour between white and brown."""

    share: float = within(0, 1)  # share of the clips
    snr_db: tuple[float, float] = within(-20, 80)  # lowest and highest ratio of speech to noise, in dB


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedNoise:
    """Recordings of noise, of which a part is added to a share of the clips."""

    folders: tuple[Path, ...]  # folders of recordings, with the folders inside
    share: float = within(0, 1)  # share of the clips
    snr_db: tuple[float, float] = within(-20, 80)  # lowest and highest ratio of speech to noise, in dB


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRooms:
    """Recorded answers of rooms to an impulse, for a share of the clips."""

    folders: tuple[Path, ...]  # folders of recordings, with the folders inside
    share: float = within(0, 1)  # share of the clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Loudness of the clips."""

    gain_db: tuple[float, float] = within(-60, 40)  # lowest and highest gain, in dB


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """Augmentation of clips; None turns one off."""

    spec_augment: SpecAugment | None = None
    noise: Noise | None = None
    recorded_noise: RecordedNoise | None = None
    recorded_rooms: RecordedRooms | None = None
    level: Level | None = None
