"""Sound files made by the tests."""

import io

import numpy as np
import soundfile

# Container and codec.
LOSSLESS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_24"),
    ("WAV", "FLOAT"),
    ("RF64", "PCM_16"),
    ("W64", "PCM_16"),
    ("FLAC", "PCM_16"),
]
LOSSY = [("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS")]


def tone(frequency, seconds, rate, level=0.5):
    """A sine wave, float32."""
    return (level * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def encoded(samples, rate, container="WAV", codec="PCM_16"):
    """The bytes of a file that holds ``samples`` [n] or [n, channels]."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=codec)
    return file.getvalue()
