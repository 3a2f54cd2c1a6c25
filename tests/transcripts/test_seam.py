"""Words in audio that two pieces share are written once, wherever the pieces were cut."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcripts.seam import seam, sure_words, text_of

SHARED = 2.0


class Heard(NamedTuple):
    text: str
    start: float | None = None
    end: float | None = None


# Words of a few letters, so that the same ones follow each other often.
SPOKEN = st.lists(
    st.tuples(st.sampled_from(["no", "yes", "well"]), st.floats(0.15, 0.9), st.floats(0.02, 3.0)),
    min_size=1,
    max_size=40,
)


def said(spoken):
    """Words with times, one after the other."""
    words, time = [], 0.0
    for text, seconds, pause in spoken:
        words.append(Heard(text, time, time + seconds))
        time += seconds + pause
    return words


def heard(words, begin, end, shift=0.0):
    """The words that a model hears in a piece, their times off by ``shift``; one that is cut off is a "?"."""
    found = []
    for word in words:
        first, last = max(word.start, begin), min(word.end, end)
        if last - first > 0.04:
            is_whole = (first, last) == (word.start, word.end)
            found.append(Heard(word.text if is_whole else "?", first + shift, last + shift))
    return found


def joined(pieces, seams):
    """The transcripts of pieces as one."""
    texts, carried = [], pieces[0]
    for following, (begin, end) in zip(pieces[1:], seams, strict=True):
        kept, first = seam(carried, following, begin, end)
        texts += carried[:kept]
        carried = following[first:]
    return [word.text for word in (*texts, *carried)]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(SPOKEN, st.floats(4.0, 10.0), st.floats(-0.02, 0.02))
def test_no_word_is_lost_or_doubled_at_a_seam(spoken, longest, shift):
    words = said(spoken)
    begins = [0.0]
    while begins[-1] + longest < words[-1].end:
        begins.append(begins[-1] + longest - SHARED)
    pieces = [heard(words, begin, begin + longest, shift if number % 2 else 0.0) for number, begin in enumerate(begins)]
    seams = [(begin, begin + SHARED) for begin in begins[1:]]

    assert joined(pieces, seams) == [word.text for word in words]


def test_the_seam_is_behind_the_shared_word_nearest_to_the_middle():
    before = [Heard("so", 7.2, 7.6), Heard("it", 8.3, 8.5), Heard("is", 8.8, 9.0), Heard("di", 9.7, 10)]
    after = [Heard("it", 8.3, 8.5), Heard("is", 8.84, 9.0), Heard("done", 9.7, 10.1)]

    assert seam(before, after, 8.0, 10.0) == (3, 2)


@pytest.mark.parametrize("written", ["Done", "done.", "DONE"])
def test_case_and_punctuation_do_not_make_another_word(written):
    assert seam([Heard("done,", 8.0, 8.4)], [Heard(written, 8.0, 8.4)], 7.5, 9.5) == (1, 1)


def test_a_word_that_both_pieces_have_differently_is_written_once():
    before = [Heard("see", 8.0, 8.3), Heard("thee", 8.7, 9.4)]
    after = [Heard("they", 8.8, 9.5), Heard("go", 9.7, 9.9)]

    kept, first = seam(before, after, 8.0, 10.0)

    assert [*before[:kept], *after[first:]] in ([*before, after[1]], [before[0], *after])


def test_pieces_without_words_are_joined():
    assert seam([], [], 8.0, 10.0) == (0, 0)
    assert seam([], [Heard("go", 9.7, 9.9)], 8.0, 10.0) == (0, 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(6, 15), min_size=2, max_size=6), st.data())
def test_words_without_times_are_joined_by_the_words_that_both_have(lengths, data):
    # No word is said twice. Pieces share 2 to 7 words in 2 s, and may begin or end with a fragment.
    words, pieces, begin = [f"w{number}" for number in range(200)], [], 0
    for length in lengths:
        shared = data.draw(st.integers(2, 7))
        end = begin + shared + length
        fragments = [data.draw(st.sampled_from([[], ["?"]])) for _ in range(2)]
        pieces.append([Heard(text) for text in (*fragments[0], *words[begin:end], *fragments[1])])
        begin = end - shared
    joined_words, carried = [], pieces[0]
    for following in pieces[1:]:
        kept, first = seam(carried, following, 0.0, SHARED)
        joined_words += carried[:kept]
        carried = following[first:]

    texts = [word.text for word in (*joined_words, *carried)]
    assert [text for text in texts if text != "?"] == words[:end]
    assert "?" not in texts[1:-1]


@given(st.lists(st.sampled_from(["a", "b c", "d.", "e"]), max_size=8), st.data())
def test_a_part_of_a_text_is_spelled_as_the_whole_is(words, data):
    first = data.draw(st.integers(0, len(words)))
    last = data.draw(st.integers(first, len(words)))

    assert text_of(" ".join(words), words, first, last) == " ".join(words[first:last])


def test_words_before_the_shared_audio_are_final():
    words = [Heard("so", 7.2, 7.6), Heard("it", 7.8, 8.1), Heard("is", 8.8, 9.0)]

    assert sure_words(words, 8.0, 10.0) == 1
    assert sure_words([Heard("x")] * 20, 8.0, 10.0) == 6
