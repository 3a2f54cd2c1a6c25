import numpy as np
import pytest

from tests.training.bundled.recorded import ALICE, MUTE, SENTENCE, STUCK, Recorded
from training.bundled.errors import SynthesisError, UnusableSpeechError
from training.bundled.flite import SAMPLE_RATE, Flite, Manner
from training.bundled.speech import check

FLITE = pytest.mark.program("flite")


def said(voice, manner, sentence=SENTENCE):
    samples = Flite().say(voice, manner, sentence)
    check(samples, sentence)
    return samples


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
    assert Flite().voices() == ["slt", "awb", "rms", "kal16", "kal"]


@pytest.mark.parametrize("script", [None, "echo 'usage: slt'; exit 1"], ids=["absent", "another program"])
def test_without_flite_its_package_is_named(tmp_path, monkeypatch, script):
    if script:
        (tmp_path / "flite").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "flite").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SynthesisError, match="Debian's package flite has it"):
        Flite().voices()


@FLITE
@pytest.mark.parametrize("voice", ["slt", "rms"])
def test_a_voice_speaks_slower_and_faster(voice):
    slow, own, fast = (said(voice, Manner(speed=speed)) for speed in (0.75, 1.0, 1.3))

    assert slow.dtype == np.float32
    assert len(slow) > 1.15 * len(own)
    assert len(own) > 1.1 * len(fast)


@FLITE
def test_a_voice_speaks_lower_and_higher():
    low, own, high = (median_pitch(said("slt", Manner(pitch=pitch))) for pitch in (0.8, 1.0, 1.25))

    assert low == pytest.approx(0.8 * own, rel=0.1)
    assert high == pytest.approx(1.25 * own, rel=0.1)


@FLITE
@pytest.mark.parametrize(
    "sentence", ["-v is an option they said", "'; $(false) `false` it said", "(quit) said the fool"]
)
def test_a_sentence_is_never_taken_for_an_option(sentence):
    assert len(said("slt", Manner(), sentence)) > SAMPLE_RATE / 2


def test_a_synthesizer_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(Recorded, "seconds_to_speak", 0.1)

    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        Recorded().say(STUCK, Manner(), SENTENCE)


def test_a_synthesizer_that_fails_is_an_error():
    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        Recorded().say(MUTE, Manner(), SENTENCE)


def test_a_synthesizer_that_writes_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(Recorded, "command", lambda *_: ["true"])

    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        Recorded().say(ALICE, Manner(), SENTENCE)


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
