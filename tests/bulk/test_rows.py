"""Rows come back from a shard's file as they were."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulk.entries import Entry
from bulk.file_transcripts import Failed, Transcribed
from bulk.rows import DETAILS, Tally, counted, encoded, row, tally
from models import Transcript
from transcripts.spoken_language import Spoken
from transcripts.transcript import Word

TIMES = st.none() | st.floats(0, 100)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.builds(Word, TEXTS, TIMES, TIMES, st.floats(0, 1), st.tuples(st.integers(0, 9), st.integers(0, 9)))
NUMBERS = st.lists(st.integers(0, 1000), max_size=5)
TRANSCRIPTS = st.builds(
    Transcript, TEXTS, NUMBERS, st.lists(st.floats(0, 1)), st.lists(WORDS), st.none() | NUMBERS, st.none() | NUMBERS
)
OUTCOMES = st.lists(st.builds(Transcribed, st.floats(0.1, 1e4), TRANSCRIPTS) | st.builds(Failed, TEXTS), max_size=5)


def rows_of(outcomes, detail):
    return [row(Entry(f"{n}.wav", f"/{n}.wav", 1.0), outcome, detail) for n, outcome in enumerate(outcomes)]


@settings(deadline=None)
@given(OUTCOMES, st.sampled_from(DETAILS))
def test_json_lines_come_back_as_they_were(outcomes, detail):
    rows = rows_of(outcomes, detail)

    content = encoded(rows)

    assert [json.loads(line) for line in content.splitlines()] == json.loads(json.dumps(rows))
    assert counted(content) == tally(rows)


def test_details_add_to_each_other():
    heard = Transcript("x", [7], [0.5], [Word("x", 0.1, 0.2, 0.5, (0, 1))], [1])

    text, words = (rows_of([Transcribed(2.0, heard, Spoken("de", 0.75))], detail)[0] for detail in DETAILS)

    language = {"language": "de", "language_probability": 0.75}
    assert text == {"audio": "0.wav", "duration": 2.0, "text": "x", "error": None} | language
    assert words == text | {"words": [{"text": "x", "start": 0.1, "end": 0.2, "confidence": 0.5}]}


def test_a_tally_counts_what_failed_and_the_audio_of_the_rest():
    heard = Transcript("", [], [], [], [])

    assert tally(rows_of([Failed("damaged"), Transcribed(2.5, heard)], "text")) == Tally(2, 1, 2.5)


@pytest.mark.parametrize("content", [b'{"audio": "a', b'{"audio": "a.wav"}\n', b"5\n", b"[]\n"])
def test_a_damaged_file_is_an_error(content):
    with pytest.raises(ValueError):  # noqa: PT011  # whatever a parser says
        counted(content)
