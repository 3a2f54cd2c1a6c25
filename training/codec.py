"""Augmentation by the lossy codecs of telephones and messengers, without a shift in time.

libsndfile removes the delay of its codecs, and soxr's filters have none, so a teacher's posteriors of the clean clip
are valid for the coded one.
"""

import io
from dataclasses import dataclass

import numpy as np
import soundfile

from audio.resample import resampled
from audio.samples import Samples


@dataclass(frozen=True, slots=True)
class Codec:
    """A lossy codec by libsndfile's names, its rate (None: the clip's), and its range of libsndfile's compression."""

    container: str
    encoding: str
    rate: int | None = None
    compression: tuple[float, float] | None = None


# libsndfile 1.2.2 crashes when it gets minutes of Vorbis in one call.
_BLOCK = 8192

CODECS = (
    Codec("OGG", "OPUS", compression=(0.8, 1.0)),
    Codec("OGG", "VORBIS", compression=(0.5, 1.0)),
    Codec("MP3", "MPEG_LAYER_III", compression=(0.5, 0.99)),
    Codec("OGG", "OPUS", rate=8000, compression=(0.8, 1.0)),
    Codec("WAV", "GSM610", rate=8000),
    Codec("WAV", "ULAW", rate=8000),
)


def coded(samples: Samples, rate: int, random: np.random.Generator) -> Samples:
    """Return a clip, mono float32 [n] within -1 to 1, that went through a random codec, with as many samples."""
    if not len(samples):
        return samples
    codec = CODECS[random.integers(len(CODECS))]
    compression = random.uniform(*codec.compression) if codec.compression else None
    return through(codec, compression, samples, rate)


def through(codec: Codec, compression: float | None, samples: Samples, rate: int) -> Samples:
    """Return a clip that went through one codec, with as many samples."""
    own_rate = codec.rate or rate
    file = io.BytesIO()
    with soundfile.SoundFile(
        file,
        "w",
        own_rate,
        channels=1,
        format=codec.container,
        subtype=codec.encoding,
        compression_level=compression,
    ) as coder:
        written = _at(samples, rate, own_rate)
        for start in range(0, len(written), _BLOCK):
            coder.write(written[start : start + _BLOCK])
    file.seek(0)
    decoded, _ = soundfile.read(file, dtype="float32")
    result = _at(decoded, own_rate, rate)[: len(samples)]
    # Some codecs lose samples of the last block.
    return np.pad(result, (0, len(samples) - len(result)))


def _at(samples: Samples, rate: int, wanted: int) -> Samples:
    return np.concatenate([np.empty(0, np.float32), *resampled([samples], rate, wanted)])
