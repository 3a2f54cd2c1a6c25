"""A take is its clip, faster or slower; errors name the clip."""

import json

import numpy as np
import pytest
import soundfile

from training.clip import Clip
from training.errors import ManifestError
from training.manifest import read_manifest
from training.recipe import TrainingData
from training.takes import Take, fitting

RATE = 16_000


def tone(folder, seconds=1.0, hertz=440):
    """A clip of one tone."""
    path = folder / "tone.wav"
    time = np.arange(round(seconds * RATE)) / RATE
    soundfile.write(path, (0.5 * np.sin(2 * np.pi * hertz * time)).astype(np.float32), RATE)
    return Clip(path, "tone.wav", seconds, "la", "tones", "sine")


def pitch(samples):
    return np.abs(np.fft.rfft(samples * np.hanning(len(samples)))).argmax() * RATE / len(samples)


@pytest.mark.parametrize("speed", [0.9, 1.0, 1.1])
def test_speed_changes_length_and_pitch(tmp_path, speed):
    take = Take(tone(tmp_path), speed)

    samples = take.samples(RATE)

    assert len(samples) == pytest.approx(RATE / speed, abs=2)
    assert take.seconds == pytest.approx(1 / speed)
    assert pitch(samples) == pytest.approx(440 * speed, abs=2)


@pytest.mark.parametrize("claimed", [0.3, 1.7])
def test_a_clip_of_another_length_than_the_manifest_says_is_refused(tmp_path, claimed):
    clip = tone(tmp_path)

    with pytest.raises(ManifestError, match=r"tone\.wav"):
        Take(Clip(clip.audio, clip.name, claimed, None, "tones", "sine")).samples(RATE)


@pytest.mark.parametrize("content", [None, b"", b"nothing to hear"])
def test_a_clip_that_does_not_decode_is_named(tmp_path, content):
    path = tmp_path / "bad.wav"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ManifestError, match=r"bad\.wav"):
        Take(Clip(path, "bad.wav", 1.0, None, "bad", "bad")).samples(RATE)


def test_every_clip_is_taken_at_every_speed_at_which_it_fits(tmp_path):
    manifest = tmp_path / "set.jsonl"
    rows = [{"audio": "short", "duration": 0.52}, {"audio": "long", "duration": 9.5}, {"audio": "fits", "duration": 5}]
    manifest.write_text("\n".join(map(json.dumps, rows)))

    data = TrainingData(manifests=(manifest,), max_seconds=10, speeds=(0.9, 1.1))
    takes = [take for clip in read_manifest(manifest) for take in fitting(clip, data)]

    assert [take.name for take in takes] == ["short@0.9", "long@1.1", "fits@0.9", "fits@1.1"]
