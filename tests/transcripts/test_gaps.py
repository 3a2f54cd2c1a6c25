"""Stretches without words, and words that are put in there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.joining import Gap, filled, gaps, joined, shifted
from transcripts.transcript import Transcript, Word


def spoken(*times: tuple[str, float, float]) -> Transcript:
    """A transcript with a token for each letter."""
    words, token = [], 0
    for text, start, end in times:
        words.append(Word(text, start, end, 0.9, (token, token + len(text))))
        token += len(text)
    return Transcript(" ".join(text for text, *_ in times), list(range(token)), [0.9] * token, words)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], [(0.0, 10.0)]),
        ([("all", 0.5, 9.5)], []),
        ([("a", 0.2, 1.0), ("b", 6.0, 9.0)], [(1.3, 5.7)]),
        ([("end", 4.0, 5.0)], [(0.0, 3.7), (5.3, 10.0)]),
        ([("long", 0.0, 9.0), ("within", 2.0, 3.0)], []),
    ],
)
def test_gaps_are_what_no_word_is_near(words, found):
    assert gaps(spoken(*words), 10.0, 1.0) == [Gap(*map(pytest.approx, gap)) for gap in found]


def test_words_without_times_have_no_gaps():
    timed = spoken(("one", 0.0, 1.0))
    untimed = timed._replace(words=[word._replace(start=None, end=None) for word in timed.words])

    assert gaps(untimed, 60.0, 1.0) == []
    assert filled(timed, untimed) == timed
    assert filled(spoken(), untimed) == untimed


@given(st.lists(st.sampled_from(["ab", "c", "def"]), min_size=1, max_size=6), st.data())
def test_words_that_are_taken_out_and_put_in_again_are_where_they_were(texts, data):
    whole = spoken(*((text, 2.0 * place, 2.0 * place + 1) for place, text in enumerate(texts)))
    first = data.draw(st.integers(0, len(texts) - 1))
    last = data.draw(st.integers(first + 1, len(texts)))
    words = [(word.text, word.start, word.end) for word in whole.words]
    rest = joined([spoken(*words[:first]), spoken(*words[last:])])
    alone = spoken(*((text, start - 2.0 * first, end - 2.0 * first) for text, start, end in words[first:last]))

    again = filled(rest, shifted(alone, 2.0 * first))

    assert again.text == whole.text
    assert again.words == whole.words
    assert len(again.tokens) == len(whole.tokens)
