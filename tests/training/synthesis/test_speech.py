import numpy as np
import pytest

from tests.training.synthesis.recorded import ALICE, MUTE, SENTENCE, STUCK, Recorded
from training.synthesis.errors import UnusableSpeechError
from training.synthesis.speech import check, spoken
from training.synthesis.voice import SAMPLE_RATE, Manner, Voice
from training.synthesis.voices import PROGRAMS, voices_of

BY_SPEAKER = {voice.speaker: voice for voice in voices_of(PROGRAMS)}
CAN_CHANGE_PITCH = [
    pytest.param("espeak-ng/en-us+f2", marks=pytest.mark.program("espeak-ng")),
    pytest.param("flite/slt", marks=pytest.mark.program("flite")),
    pytest.param("festival/kal_diphone", marks=pytest.mark.program("text2wave")),
]
CAN_CHANGE_SPEED = [
    *CAN_CHANGE_PITCH,
    pytest.param("flite/rms", marks=pytest.mark.program("flite")),
    pytest.param("festival/cmu_us_slt_arctic_hts", marks=pytest.mark.program("text2wave")),
]


def voice(name):
    return Voice(Recorded(), name)


def median_pitch(samples):
    """Return the fundamental frequency in Hz, by autocorrelation of 40 ms windows that are voiced."""
    size, found = SAMPLE_RATE // 25, []
    for window in samples[: len(samples) // size * size].reshape(-1, size):
        correlation = np.correlate(window, window, "full")[size - 1 :]
        lag = 40 + int(correlation[40:260].argmax())
        if window.std() > 0.02 and correlation[lag] > 0.4 * correlation[0]:
            found.append(SAMPLE_RATE / lag)
    return np.median(found)


@pytest.mark.parametrize("speaker", CAN_CHANGE_SPEED)
def test_a_voice_speaks_slower_and_faster(speaker):
    slow, own, fast = (spoken(BY_SPEAKER[speaker], Manner(speed=speed), SENTENCE) for speed in (0.75, 1.0, 1.3))

    assert slow.dtype == np.float32
    assert len(slow) > 1.15 * len(own)
    assert len(own) > 1.1 * len(fast)


@pytest.mark.parametrize("speaker", CAN_CHANGE_PITCH)
def test_a_voice_speaks_lower_and_higher(speaker):
    low, own, high = (
        median_pitch(spoken(BY_SPEAKER[speaker], Manner(pitch=pitch), SENTENCE)) for pitch in (0.8, 1.0, 1.25)
    )

    assert low == pytest.approx(0.8 * own, rel=0.1)
    assert high == pytest.approx(1.25 * own, rel=0.1)


@pytest.mark.parametrize(
    "sentence", ["-v is an option they said", "'; $(false) `false` it said", "(quit) said the fool"]
)
@pytest.mark.parametrize("speaker", CAN_CHANGE_PITCH)
def test_a_sentence_is_never_taken_for_an_option(speaker, sentence):
    assert len(spoken(BY_SPEAKER[speaker], Manner(), sentence)) > SAMPLE_RATE / 2


def test_a_synthesizer_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(Recorded, "seconds_to_speak", 0.1)

    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        spoken(voice(STUCK), Manner(), SENTENCE)


def test_a_synthesizer_that_fails_is_an_error():
    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        spoken(voice(MUTE), Manner(), SENTENCE)


def test_a_synthesizer_that_writes_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(Recorded, "command", lambda *_: ["true"])

    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        spoken(voice(ALICE), Manner(), SENTENCE)


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
