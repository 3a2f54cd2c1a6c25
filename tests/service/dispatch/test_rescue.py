"""Speech for which a model wrote nothing gets words; what has words, or no speech, is left as it is."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile

from audio.segment.voice_activity import SpeechDetector
from benchmarks.stub_engine import LOUD, SAMPLE_RATE
from service.dispatch.errors import DeadlineExceededError
from service.dispatch.rescue import Rescue
from tests.service.serving import form, serving, wav
from transcripts.transcript import Transcript, Word

NOTHING = Transcript("", [], [], [])


@pytest.fixture(scope="module")
def rescue():
    with ThreadPoolExecutor(1) as threads:
        yield Rescue(SpeechDetector(), threads)


@pytest.fixture(scope="module")
def speech(golden):
    return soundfile.read(golden / "clips" / "rms-6s.wav", dtype="float32")[0]


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * SAMPLE_RATE), np.float32)


def hum(seconds: float) -> np.ndarray:
    return 0.1 * np.sin(2 * np.pi * 100 * np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE).astype(np.float32)


def one_word(samples: np.ndarray) -> Transcript:
    """A model that remembers."""
    return Transcript("again", [7], [0.9], [Word("again", 0.0, len(samples) / SAMPLE_RATE, 0.9, (0, 1))])


def rescued(rescue, samples, transcript):
    """The transcript after a second transcription, the seconds that it found, and what it transcribed again."""
    again = []

    async def transcribe(stretch):
        again.append(stretch)
        return one_word(stretch)

    found = asyncio.run(rescue.rescue(samples, SAMPLE_RATE, transcript, transcribe))
    return found.transcript, sum(stop - start for start, stop in found.stretches), again


def test_a_forgotten_end_is_transcribed_again_without_the_silence_around_it(rescue, speech):
    samples = np.concatenate([silence(2), silence(2), speech, silence(3)])
    first = Transcript("first", [1], [0.9], [Word("first", 0.2, 1.5, 0.9, (0, 1))])

    transcript, seconds, (stretch,) = rescued(rescue, samples, first)

    assert transcript.text == "first again"
    assert transcript.tokens == [1, 7]
    assert 4 < seconds < 6.5
    assert len(stretch) / SAMPLE_RATE == pytest.approx(seconds, abs=0.01)
    assert 3.5 < transcript.words[1].start < 4.5


def test_a_clip_without_any_word_is_not_the_same_sound_again(rescue, speech):
    transcript, _, (stretch,) = rescued(rescue, speech, NOTHING)

    assert transcript.text == "again"
    assert len(stretch) < len(speech)


def test_quiet_speech_behind_loud_speech_is_heard(rescue, speech):
    samples = np.concatenate([speech[: 2 * SAMPLE_RATE], 0.003 * speech[2 * SAMPLE_RATE : 5 * SAMPLE_RATE]])
    first = Transcript("first", [1], [0.9], [Word("first", 0.2, 1.7, 0.9, (0, 1))])

    transcript, *_ = rescued(rescue, samples, first)

    assert transcript.text == "first again"


def test_quiet_speech_behind_speech_that_was_forgotten_too_is_heard_after_it(rescue, speech):
    transcript, _, again = rescued(rescue, np.concatenate([speech, 0.003 * speech]), NOTHING)

    assert transcript.text == "again again"
    assert len(again) == 2


def test_a_stretch_that_stays_without_words_is_transcribed_again_only_once(rescue, speech):
    tried = []

    async def transcribe(stretch):
        tried.append(stretch)
        return one_word(stretch) if len(tried) == 1 else NOTHING

    samples = np.concatenate([speech, 0.003 * speech, silence(3), 0.003 * speech])
    found = asyncio.run(rescue.rescue(samples, SAMPLE_RATE, NOTHING, transcribe))

    assert found.transcript.text == "again"
    assert len(tried) == 2


def test_words_that_a_second_transcription_loses_too_are_heard_by_a_third_and_each_second_counts_once(rescue, speech):
    half = len(speech) / 2 / SAMPLE_RATE

    async def transcribe(stretch):
        heard = one_word(stretch)
        if len(stretch) < len(speech) / 2:
            return heard
        return heard._replace(words=[heard.words[0]._replace(end=half)])

    found = asyncio.run(rescue.rescue(speech, SAMPLE_RATE, NOTHING, transcribe))

    assert found.transcript.text == "again again"
    assert len(found.stretches) == 1
    assert found.stretches[0].stop - found.stretches[0].start < len(speech) / SAMPLE_RATE


@pytest.mark.parametrize(
    "samples",
    [silence(20), hum(20), np.random.default_rng(0).normal(0, 0.05, 20 * SAMPLE_RATE).astype(np.float32)],
    ids=["silence", "hum", "noise"],
)
def test_what_is_no_speech_is_not_transcribed_again(rescue, samples):
    assert rescued(rescue, samples, NOTHING) == (NOTHING, 0.0, [])


def test_what_has_words_throughout_is_left_as_it_is(rescue, speech):
    whole = one_word(speech)

    transcript, seconds, again = rescued(rescue, speech, whole)

    assert transcript is whole
    assert (seconds, again) == (0.0, [])


def test_words_without_times_rescue_a_clip_without_any(rescue, speech):
    async def transcribe(_):
        return Transcript("again", [7], [0.9], [Word("again", None, None, 0.9, (0, 1))])

    found = asyncio.run(rescue.rescue(speech, SAMPLE_RATE, NOTHING, transcribe))

    assert found.transcript.text == "again"
    assert found.stretches


def test_a_stretch_that_cannot_be_transcribed_stays_without_words(rescue, speech):
    async def refuse(_):
        raise DeadlineExceededError("No transcript in time.", retry_after=60)

    assert asyncio.run(rescue.rescue(speech, SAMPLE_RATE, NOTHING, refuse)) == (NOTHING, [])


@pytest.mark.parametrize(("setting", "words"), [({}, 3), ({"rescue": False}, 1)])
def test_a_service_says_what_it_rescued(speech, setting, words):
    loud = np.concatenate([np.full(1, LOUD, np.float32), hum(2)[1:] * 0.01, speech])
    asked = form(wav(loud), response_format="verbose_json")
    with serving(model="forgetful.nemo", **setting) as served:
        answer = served.post(**asked).json()

        assert len(answer["text"].split()) == words
        assert served.metric('steno_audio_without_words_seconds_total{kind="rescued"}') == answer["rescued_seconds"]
        assert (answer["rescued_seconds"] > 4) == (words == 3)


def test_quiet_speech_that_was_heard_again_is_speech(speech):
    recording = np.concatenate([np.full(1, LOUD, np.float32), speech[:SAMPLE_RATE], speech * 0.003])
    asked = form(wav(recording), response_format="verbose_json")
    with serving(model="forgetful.nemo") as served:
        answer = served.post(**asked).json()

    assert answer["rescued_seconds"] > 4
    assert all(segment["no_speech_prob"] < 0.5 for segment in answer["segments"])
