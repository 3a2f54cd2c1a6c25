"""Every word gets a time that the model gave, and no text is lost."""

from hypothesis import given
from hypothesis import strategies as st

from transcripts.timed_words import timed_words
from transcripts.transcript import Transcript, Word


def transcript(*spoken: tuple[float, float] | None) -> Transcript:
    words = [
        Word(f"w{index}", *(times or (None, None)), 0.5 + index / 100, (2 * index, 2 * index + 2))
        for index, times in enumerate(spoken)
    ]
    return Transcript(" ".join(word.text for word in words), [], [], words)


def test_a_word_without_a_time_gets_that_of_the_word_before_or_after():
    words = timed_words(transcript(None, (1.0, 2.0), None, (3.0, 4.0)), 9.0)

    assert [(word.text, word.start, word.end) for word in words] == [("w0 w1 w2", 1.0, 2.0), (" w3", 3.0, 4.0)]
    assert [word.token_span for word in words] == [(0, 6), (6, 8)]
    assert words[0].confidence == 0.5


def test_without_any_times_words_are_spread_over_the_recording():
    (word,) = timed_words(transcript(None, None), 9.0)

    assert (word.text, word.start, word.end) == ("w0 w1", 0.0, 9.0)


@given(st.lists(st.none() | st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=10).map(tuple))
def test_no_text_is_lost_and_every_word_has_a_time(spoken):
    heard = transcript(*spoken)

    words = timed_words(heard, 10.0)

    assert "".join(word.text for word in words) == heard.text
    assert all(word.start is not None and word.end is not None for word in words)
    if None not in spoken:
        assert [word.text.strip() for word in words] == [word.text for word in heard.words]
        assert [(word.start, word.end) for word in words] == list(spoken)
