"""Augmentation of waveforms by rooms, noise and gain."""

import numpy as np

from audio.samples import Samples
from training.recipe_augmentation import Augmentation, Level, Noise
from training.recordings import Recordings
from training.student import FRONT_END

# Range of c in noise whose power falls as frequency ** -c: 0 is white, 1 pink, 2 brown.
_COLOURS = (0.0, 2.0)


class Augmenter:
    """Augments clips as a recipe says. Threads may share it.

    Attributes:
        config: the augmentation of the recipe.
        recordings: the recordings that it needs, of noise and of rooms.
    """

    def __init__(self, config: Augmentation) -> None:
        """Find the recordings.

        Raises:
            RecipeError: if a folder has no recording, or cannot be read.
        """
        self.config = config
        noise, rooms = config.recorded_noise, config.recorded_rooms
        self._noise = Recordings(noise.folders, "augmentation.recorded_noise.folders") if noise else None
        self._rooms = Recordings(rooms.folders, "augmentation.recorded_rooms.folders") if rooms else None
        self.recordings = [one for one in (self._noise, self._rooms) if one]

    def augmented(self, samples: Samples, random: np.random.Generator) -> Samples:
        """Return a clip, mono float32 [n], in a room, with noise and at another level, each if it is configured.

        Returns:
            As many samples, float32, within -1 to 1.

        Raises:
            ManifestError: if a recording does not decode.
        """
        config, rate = self.config, FRONT_END.sample_rate
        if config.recorded_rooms and self._rooms and random.random() < config.recorded_rooms.share:
            samples = in_room(samples, self._rooms.room(rate, random))
        if config.noise and random.random() < config.noise.share:
            samples = with_noise(samples, config.noise, random)
        if config.recorded_noise and self._noise and random.random() < config.recorded_noise.share:
            snr_db = random.uniform(*config.recorded_noise.snr_db)
            samples = _added(samples, self._noise.noise(len(samples), rate, random), snr_db)
        if config.level:
            samples = at_level(samples, config.level, random)
        return np.clip(samples, -1.0, 1.0)


def in_room(samples: Samples, response: Samples) -> Samples:
    """Return a clip in a room, as loud as before and at the same time.

    The loudest sample of the room's answer to an impulse is taken for the direct sound.
    """
    size = _fft_size(len(samples) + len(response))
    spectrum = np.fft.rfft(samples, size) * np.fft.rfft(response.astype(np.float64), size)
    first = int(np.abs(response).argmax())
    result = np.fft.irfft(spectrum, size)[first : first + len(samples)].astype(np.float32)
    return (result * _rms(samples) / max(_rms(result), 1e-9)).astype(np.float32)


def with_noise(samples: Samples, config: Noise, random: np.random.Generator) -> Samples:
    """Return a clip with stationary noise of a random colour and signal-to-noise ratio."""
    snr_db = random.uniform(*config.snr_db)
    size = _fft_size(len(samples))
    spectrum = np.fft.rfft(random.standard_normal(size))
    colour = random.uniform(*_COLOURS)
    spectrum[1:] *= np.arange(1, len(spectrum)) ** (-colour / 2)
    spectrum[0] = 0.0
    return _added(samples, np.fft.irfft(spectrum, size)[: len(samples)], snr_db)


def at_level(samples: Samples, config: Level, random: np.random.Generator) -> Samples:
    """Return a clip with a random gain."""
    return (samples * 10 ** (random.uniform(*config.gain_db) / 20)).astype(np.float32)


def _added(samples: Samples, noise: np.ndarray[tuple[int], np.dtype[np.floating]], snr_db: float) -> Samples:
    """Return a clip with noise at a ratio of their loudness."""
    snr = 10 ** (snr_db / 20)
    return (samples + noise * _rms(samples) / (snr * max(_rms(noise), 1e-9))).astype(np.float32)


def _fft_size(length: int) -> int:
    return 1 << max(1, length - 1).bit_length()


def _rms(samples: np.ndarray[tuple[int], np.dtype[np.floating]]) -> float:
    """Return the root mean square; 0 without samples."""
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if len(samples) else 0.0
