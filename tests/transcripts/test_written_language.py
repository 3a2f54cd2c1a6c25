"""The language that a model writes beside its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.spoken_language import Spoken
from transcripts.transcript import Transcript
from transcripts.transcription import Part
from transcripts.written_language import language_of_parts, written_language

TAGS = {7: "de", 8: "en", 9: "en"}


def said(*tokens):
    return Transcript("text", list(tokens), [token / 10 for token in tokens], [])


def part(seconds, spoken):
    return Part(said(), 10.0, 10.0 + seconds, spoken)


def test_most_tags_count_and_of_equals_the_first():
    assert written_language(said(1, 2), TAGS) is None
    assert written_language(said(), TAGS) is None
    assert written_language(said(1, 8), {}) is None
    assert written_language(said(8, 1, 7), TAGS) == ("en", 0.8)
    assert written_language(said(7, 8, 2, 9), TAGS) == ("en", pytest.approx(0.85))


@given(st.lists(st.sampled_from([1, 2, *TAGS]), min_size=1))
def test_a_language_is_known_if_and_only_if_it_is_tagged(tokens):
    spoken = written_language(said(*tokens), TAGS)

    assert (spoken is None) == TAGS.keys().isdisjoint(tokens)
    if spoken:
        assert spoken.language in TAGS.values()
        assert 0 < spoken.probability < 1


def test_a_recording_has_the_language_of_most_of_its_seconds():
    parts = [part(3, Spoken("de", 1.0)), part(2, Spoken("en", 0.5)), part(60, None), part(2, Spoken("en", 1.0))]

    assert language_of_parts(parts) == ("en", 0.75)
    assert language_of_parts(parts[:2]) == ("de", 1.0)
    assert language_of_parts(parts[2:3]) is None
    assert language_of_parts([part(0, Spoken("de", 1.0))]) == ("de", 0.0)
