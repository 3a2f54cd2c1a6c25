"""Speech is distinguished from silence and noise, in blocks of any size."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.decode import decode
from audio.limits import AudioLimits
from audio.segment.level import Level
from audio.segment.voice_activity import FRAME_SAMPLES, RATE, SpeechDetector
from audio.segment.voice_change import bands_of
from tests.audio.sound_files import encoded


@pytest.fixture(scope="module")
def detector():
    return SpeechDetector()


@pytest.fixture(scope="module")
def clip(golden):
    samples, rate = soundfile.read(golden / "clips" / "slt-12s.wav", dtype="float32")
    assert rate == RATE
    return samples


def judged(detector, samples, sizes=()):
    """Probabilities and bands of samples that come in blocks of these sizes, and the rest at once."""
    stream, answers, done = detector.stream(), [], 0
    for size in [*sizes, len(samples)]:
        answers.append(stream.push(samples[done : done + size]))
        done = min(done + size, len(samples))
    answers.append(stream.finish())
    probabilities, frames = zip(*answers, strict=True)
    return np.concatenate(probabilities), bands_of(np.concatenate(frames))


def test_a_voice_is_speech_and_silence_and_noise_are_not(detector, clip):
    silence = np.zeros(5 * RATE, np.float32)
    noise = np.random.default_rng(1).normal(0, 0.01, 5 * RATE).astype(np.float32)

    assert np.mean(judged(detector, clip)[0] > 0.5) > 0.6
    assert np.max(judged(detector, silence)[0]) < 0.5
    assert np.mean(judged(detector, noise)[0] > 0.5) < 0.02


@pytest.mark.parametrize("codec", ["ULAW", "ALAW"])
def test_quiet_speech_of_telephones_is_speech_as_in_16_bits(detector, clip, codec):
    quiet = clip * (10 ** (-73 / 20) / np.sqrt(np.square(clip).mean()))

    def share(codec):
        file = io.BytesIO(encoded(quiet, RATE, "WAV", codec))
        samples = decode(file, rate=RATE, limits=AudioLimits()).samples
        return np.mean(judged(detector, Level().raised(samples))[0] > 0.35)

    assert share(codec) > 0.8 * share("PCM_16") > 0.5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=30))
def test_it_does_not_matter_how_the_audio_is_divided(detector, clip, sizes):
    samples = clip[: 4 * RATE]

    probabilities, bands = judged(detector, samples, sizes)

    together, bands_together = judged(detector, samples)
    np.testing.assert_allclose(probabilities, together, atol=1e-5)
    np.testing.assert_allclose(bands, bands_together, atol=1e-5)


@pytest.mark.parametrize("samples", [0, 1, FRAME_SAMPLES - 1, FRAME_SAMPLES, FRAME_SAMPLES + 1])
def test_every_sample_is_in_a_frame(detector, samples):
    probabilities, bands = judged(detector, np.ones(samples, np.float32))

    assert len(probabilities) == len(bands) == -(-samples // FRAME_SAMPLES)


def test_a_tone_is_in_the_band_of_its_frequency_and_a_louder_one_has_more_energy(detector):
    tone = np.sin(2 * np.pi * 1000 * np.arange(FRAME_SAMPLES) / RATE).astype(np.float32)

    _, bands = judged(detector, np.concatenate((tone, 0.1 * tone)))

    assert bands.shape == (2, 20)
    assert bands.argmax(axis=1).tolist() == [6, 6]
    assert bands[0, 6] - bands[1, 6] == pytest.approx(np.log(100), abs=0.01)


def test_the_detector_sends_no_telemetry_and_leaves_no_file(tmp_path):
    """ONNX Runtime's defaults do both."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = "import os; from audio.segment.voice_activity import SpeechDetector; SpeechDetector(); print('made')"

    done = subprocess.run(
        [sys.executable, "-c", command],
        env=environment | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert done.stdout == "made\n"
    assert list(tmp_path.rglob("*")) == []
