import json
import math

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.audio import TranscriptionVerbose
from pydantic import TypeAdapter

from transcripts.json_formats import as_verbose_json
from transcripts.segments import split_segments
from transcripts.transcript import Transcript, Word
from transcripts.transcription import Channel, Coverage, Language, Speech, Transcription, stretches


def words(*spoken: tuple[str, float, float]) -> list[Word]:
    return [Word(text, start, end, 0.5, (index, index + 1)) for index, (text, start, end) in enumerate(spoken)]


def transcript(*spoken: tuple[str, float, float]) -> Transcript:
    text = " ".join(word for word, _, _ in spoken)
    return Transcript(text, list(range(len(spoken))), [0.5] * len(spoken), words(*spoken))


# Half of the second 0.5 to 1 is speech; frames last 32 ms.
SPEECH = np.array([0.9] * 24 + [0.1] * 60, np.float32)
COVERAGE = Coverage(transcribed=2.0, skipped=0.5, speech_without_text=0.0, rescued=0.0)
PLAIN = Language()
TWO = transcript(("hi.", 0.0, 0.4), ("there", 0.5, 1.0))


def whole(transcript: Transcript, language: Language = PLAIN, seconds: float = 2.5) -> Transcription:
    channel = Channel(None, seconds, transcript, (), language, Speech(SPEECH, 0.032))
    return Transcription(seconds, [channel], language, COVERAGE)


def verbose(heard: Transcription, *granularities: str) -> dict:
    """The object, as a client reads it."""
    body = as_verbose_json(heard, words="word" in granularities, segments="segment" in granularities)
    return json.loads(orjson.dumps(body))


def test_segments_end_with_sentences_and_at_long_pauses():
    spoken = words(("One.", 0, 1), ("Two", 1, 2), ("three?", 2, 3), ("four", 3, 4), ("five", 5.5, 6))

    segments = [[word.text for word in segment] for segment in split_segments(spoken)]

    assert segments == [["One."], ["Two", "three?"], ["four"], ["five"]]


def one_after_the_other(gaps: list[tuple[str, float, float]]) -> Transcript:
    """Words by text, the pause before them, and their length."""
    spoken, now = [], 0.0
    for text, gap, length in gaps:
        spoken.append((text, now + gap, now + gap + length))
        now += gap + length
    return transcript(*spoken)


WORD = st.tuples(st.sampled_from(["a", "b.", "aa", "c!"]), st.floats(0, 3), st.floats(0.01, 1))
SPOKEN = st.lists(WORD, max_size=20).map(one_after_the_other)


@given(SPOKEN)
def test_segments_hold_every_word_once_in_order(heard):
    segments = list(split_segments(heard.words))

    assert [word for segment in segments for word in segment] == heard.words
    assert all(segments)


def test_verbose_segments_have_every_key_that_clients_read():
    segment = verbose(whole(TWO), "segment")["segments"][1]

    assert segment == {
        "id": 1,
        "seek": 0,
        "start": 0.5,
        "end": 1.0,
        "text": "there",
        "tokens": [1],
        "temperature": 0.0,
        "avg_logprob": -0.6931471805599453,
        "compression_ratio": 5 / 13,
        "no_speech_prob": 8 / 17,
    }


@given(SPOKEN)
def test_deltas_are_the_text_piece_by_piece(heard):
    pieces = list(stretches(heard))

    assert "".join(piece.text for piece in pieces) == heard.text
    assert [token for piece in pieces for token in range(*piece.token_span)] == heard.tokens
    assert [word for piece in pieces for word in piece.words] == heard.words
    assert len(pieces) == len(list(split_segments(heard.words)))
    assert all(piece.text for piece in pieces)


def untimed(*texts: str) -> Transcript:
    heard = [Word(text, None, None, 0.5, (index, index + 1)) for index, text in enumerate(texts)]
    return Transcript(" ".join(texts), list(range(len(texts))), [0.5] * len(texts), heard)


def test_words_without_times_divide_the_time():
    body = verbose(whole(untimed("hi.", "you")), "word")

    assert [(word["word"], word["start"], word["end"]) for word in body["words"]] == [
        ("hi.", 0.0, 1.25),
        ("you", 1.25, 2.5),
    ]
    assert "segments" not in body
    assert body["text"] == "hi. you"


def test_deltas_of_words_without_times_end_with_sentences():
    assert [piece.text for piece in stretches(untimed("hi.", "you"))] == ["hi.", " you"]


SECONDS = st.integers(0, 300).map(lambda hundredths: hundredths / 100)
SOME_WORDS = st.lists(
    st.tuples(st.sampled_from(["a", "b.", "c!"]), st.none() | st.tuples(SECONDS, SECONDS)), max_size=12
)


@given(SOME_WORDS, st.sampled_from([0.0, 1e-45, 0.3, 1.0]), st.sampled_from([None, "de"]))
def test_what_openai_requires_is_there_whatever_the_model_left_out(spoken, probability, language):
    heard, now = [], 0.0
    for index, (text, times) in enumerate(spoken):
        start = end = None
        if times is not None:
            start = now + times[0]
            now = end = start + times[1]
        heard.append(Word(text, start, end, None, (index, index + 1)))
    transcript = Transcript(
        " ".join(word.text for word in heard), list(range(len(heard))), [probability] * len(heard), heard
    )
    found = whole(transcript, Language("transcribe", language), now + 1)

    body = orjson.dumps(as_verbose_json(found, words=True, segments=True))

    # The client itself takes anything; those in other languages do not.
    read = TypeAdapter(TranscriptionVerbose).validate_json(body, strict=True)
    assert {key for key, value in json.loads(body).items() if value is None} == set()
    assert read.language == ("german" if language else "unknown")
    assert [word.word for word in read.words] == [word.text for word in heard]
    assert all(math.isfinite(segment.avg_logprob) for segment in read.segments or [])
    times = [time for word in read.words for time in (word.start, word.end)]
    assert times == pytest.approx(sorted(times))
