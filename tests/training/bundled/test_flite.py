import numpy as np
import pytest

from training.bundled import flite
from training.bundled.flite import SAMPLE_RATE, Reading, UnusableSpeechError, check, say, voices
from training.errors import TrainingError

FLITE = pytest.mark.program("flite")
SENTENCE = "she wore the heavy coat"


@pytest.fixture
def instead(tmp_path, monkeypatch):
    """Returns a function that puts a shell script in the place of Flite, or nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(script):
        (tmp_path / "flite").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "flite").chmod(0o755)

    return put


def median_pitch(samples):
    """Return the fundamental frequency in Hz, by autocorrelation of 40 ms windows that are voiced."""
    size, found = SAMPLE_RATE // 25, []
    for window in samples[: len(samples) // size * size].reshape(-1, size):
        correlation = np.correlate(window, window, "full")[size - 1 :]
        lag = 40 + int(correlation[40:260].argmax())
        if window.std() > 0.02 and correlation[lag] > 0.4 * correlation[0]:
            found.append(SAMPLE_RATE / lag)
    return np.median(found)


@FLITE
def test_all_voices_are_there_in_a_fixed_order():
    assert voices() == ["slt", "awb", "rms", "kal16", "kal"]


@pytest.mark.parametrize("script", [None, "echo 'usage: slt'; exit 1"], ids=["absent", "another program"])
def test_without_flite_its_package_is_named(instead, script):
    if script:
        instead(script)

    with pytest.raises(TrainingError, match="Debian's package flite has it"):
        voices()


@FLITE
@pytest.mark.parametrize("voice", ["slt", "rms"])
def test_a_voice_speaks_slower_and_faster(voice):
    slow, own, fast = (say(Reading(SENTENCE, voice, speed=speed)) for speed in (0.75, 1.0, 1.3))

    assert slow.dtype == np.float32
    assert len(slow) > 1.15 * len(own)
    assert len(own) > 1.1 * len(fast)


@FLITE
def test_a_voice_speaks_lower_and_higher():
    low, own, high = (median_pitch(say(Reading(SENTENCE, "slt", pitch=pitch))) for pitch in (0.8, 1.0, 1.25))

    assert low == pytest.approx(0.8 * own, rel=0.1)
    assert high == pytest.approx(1.25 * own, rel=0.1)


@FLITE
@pytest.mark.parametrize(
    "sentence", ["-v is an option they said", "'; $(false) `false` it said", "(quit) said the fool"]
)
def test_a_sentence_is_never_taken_for_an_option(sentence):
    assert len(say(Reading(sentence, "slt"))) > SAMPLE_RATE / 2


@pytest.mark.parametrize("script", ["exit 1", "exit 0", "while :; do :; done"], ids=["fails", "writes none", "hangs"])
def test_a_synthesizer_without_a_result_is_an_error(instead, monkeypatch, script):
    monkeypatch.setattr(flite, "_SECONDS_TO_SPEAK", 0.1)
    instead(script)

    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        say(Reading(SENTENCE, "slt"))


def tone(seconds, amplitude=0.5):
    return (amplitude * np.sin(np.arange(int(seconds * SAMPLE_RATE)) / 10)).astype(np.float32)


def test_speech_at_its_pace_and_level_is_accepted():
    check(tone(2), "a sentence of thirty characters")
    check(tone(1.5), "no")


@pytest.mark.parametrize(
    ("samples", "sentence", "reason"),
    [
        (tone(0.4), "well", "too short"),
        (tone(2, amplitude=0.005), "a sentence of thirty characters", "silent"),
        (np.clip(tone(2, amplitude=1.5), -1, 1), "a sentence of thirty characters", "clipped"),
        (tone(2), "a sentence of thirty characters " * 3, "not at the pace of speech"),
        (tone(12), "a sentence of thirty characters", "not at the pace of speech"),
    ],
)
def test_speech_that_is_not_fit_to_learn_from_is_refused(samples, sentence, reason):
    with pytest.raises(UnusableSpeechError, match=reason):
        check(samples, sentence)
