import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.events import Events
from transcripts.logprobs import token_logprobs
from transcripts.subtitles import CueSize
from transcripts.transcript import Transcript
from transcripts.transcription import Part

TOKEN_BYTES = [b"", b" ", b" the", b"re", b",", b"\xe2", b"\x82", b"\xac"]


def transcribed(tokens: list[int], confidence: list[float]) -> Transcript:
    text = b"".join(TOKEN_BYTES[token] for token in tokens).decode(errors="replace").lstrip()
    return Transcript(text, tokens, confidence, [])


@given(st.lists(st.tuples(st.integers(0, len(TOKEN_BYTES) - 1), st.floats(1e-6, 1)), max_size=12))
def test_bytes_one_after_the_other_are_the_text(spoken):
    transcript = transcribed([token for token, _ in spoken], [probability for _, probability in spoken])

    entries = token_logprobs(transcript, TOKEN_BYTES)

    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode(errors="replace") == transcript.text
    assert [math.exp(entry["logprob"]) for entry in entries] == pytest.approx(transcript.token_confidence)


def test_a_part_of_a_character_is_exact_in_bytes_only():
    entries = token_logprobs(transcribed([2, 5, 6, 7], [1.0] * 4), TOKEN_BYTES)

    assert [entry["token"] for entry in entries] == ["the", "\ufffd", "\ufffd", "\ufffd"]
    assert bytes(byte for entry in entries[1:] for byte in entry["bytes"]).decode() == "€"


def test_only_the_first_token_of_a_text_loses_its_space():
    transcript = transcribed([2, 3, 2], [1.0] * 3)

    assert [entry["token"] for entry in token_logprobs(transcript, TOKEN_BYTES)] == ["the", "re", " the"]
    assert [entry["token"] for entry in token_logprobs(transcript, TOKEN_BYTES, (2, 3))] == [" the"]


def test_bytes_of_a_streamed_part_are_its_delta():
    heard = [transcribed([2, 3], [1.0] * 2), transcribed([2, 2], [1.0] * 2)]
    events = Events("json", size=CueSize(), token_bytes=TOKEN_BYTES)

    deltas = [event for part in heard for event in events.part(Part(part, 0.0, 1.0))]

    assert [delta["delta"] for delta in deltas] == ["there", " the the"]
    assert ["".join(entry["token"] for entry in delta["logprobs"]) for delta in deltas] == ["there", " the the"]


def test_a_text_that_begins_with_a_space_keeps_it():
    transcript = Transcript(" the", [2], [1.0], [])

    assert [entry["token"] for entry in token_logprobs(transcript, TOKEN_BYTES)] == [" the"]


def test_no_probability_has_the_logarithm_of_the_least():
    (entry,) = token_logprobs(transcribed([2], [0.0]), TOKEN_BYTES)

    assert entry["logprob"] == pytest.approx(-87.34, abs=0.01)
