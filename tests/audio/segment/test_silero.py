"""The rewritten network gives the probabilities of Silero's own."""

import numpy as np
import onnx
import onnxruntime
import pytest
import soundfile

from audio.segment.silero.build import NETWORK, original, rewritten
from audio.segment.voice_activity import FRAME_SAMPLES, SpeechDetector


@pytest.fixture(scope="module")
def package():
    return original()


def probabilities(network, frames):
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    contexts = np.vstack((np.zeros(64, np.float32), frames[:-1, -64:]))
    state = np.zeros((1, 1, 128), np.float32)
    return session.run(("speech_probs",), {"input": np.hstack((contexts, frames)), "h": state, "c": state})[0]


def test_probabilities_are_those_of_the_original(package, golden):
    voice, _ = soundfile.read(golden / "clips" / "slt-12s.wav", dtype="float32")
    noise = np.random.default_rng(1).normal(0, 0.05, 8_000).astype(np.float32)
    samples = np.concatenate([voice, np.zeros(16_000, np.float32), noise, 8 * voice.clip(-0.1, 0.1), 0.01 * voice])
    samples = samples[: len(samples) // FRAME_SAMPLES * FRAME_SAMPLES]

    found, _ = SpeechDetector().stream().push(samples)

    expected = probabilities(package, samples.reshape(-1, FRAME_SAMPLES))
    assert expected.min() < 0.01
    assert expected.max() > 0.99
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_network_is_the_original_rewritten(package):
    assert rewritten(package).graph == onnx.load(str(NETWORK)).graph
