"""A recording's transcript has the words of its parts at the times of the recording."""

from hypothesis import given
from hypothesis import strategies as st

from bulk.joining import Heard, joined_parts
from models import Transcript
from models.transcript import Word

FRAME = 0.04


def heard(*texts: str) -> Transcript:
    """Words of two tokens and two frames each."""
    words = [Word(text, 2 * n * FRAME, 2 * (n + 1) * FRAME, 0.5, (2 * n, 2 * n + 2)) for n, text in enumerate(texts)]
    tokens = [ord(text[0]) for text in texts for _ in range(2)]
    return Transcript(" ".join(texts), tokens, [0.5] * len(tokens), words, list(range(len(tokens))), [1] * len(tokens))


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=3), max_size=4), min_size=1, max_size=5))
def test_everything_is_there_once_and_each_word_has_its_own_tokens_and_times(texts):
    parts = [Heard(heard(*words), 10.0 * number + 1, 10.0 * number + 11) for number, words in enumerate(texts)]

    whole = joined_parts(parts, FRAME)

    assert whole.text.split() == [word for words in texts for word in words]
    assert [word.text for word in whole.words] == whole.text.split()
    assert len(whole.tokens) == len(whole.frames) == len(whole.durations) == len(whole.token_confidence)
    assert whole.frames == sorted(whole.frames)
    for word in whole.words:
        begin, end = word.token_span
        assert whole.tokens[begin:end] == [ord(word.text[0])] * 2
        assert abs(whole.frames[begin] * FRAME - word.start) <= FRAME / 2 + 1e-9


def test_a_recording_of_one_part_is_unchanged():
    whole = heard("a", "b")

    assert joined_parts([Heard(whole, 0.0, 5.0)], FRAME) is whole


def test_times_and_frames_that_are_not_known_stay_unknown():
    part = Transcript("a", [97], [0.5], [Word("a", None, None, 0.5, (0, 1))])

    whole = joined_parts([Heard(part, 0.0, 5.0), Heard(part, 5.0, 10.0)], FRAME)

    assert (whole.text, whole.tokens, whole.frames) == ("a a", [97, 97], None)
    assert [(word.start, word.end, word.token_span) for word in whole.words] == [
        (None, None, (0, 1)),
        (None, None, (1, 2)),
    ]


@given(st.integers(0, 20), st.integers(2, 20), st.integers(0, 20))
def test_words_in_shared_audio_are_there_once(before, shared, after):
    # Word k is said from 0.08 k seconds on; the second part begins with the first word that both hear.
    texts = [f"w{number}" for number in range(before + shared + after)]
    first, second = heard(*texts[: before + shared]), heard(*texts[before:])
    begin, middle = 2 * before * FRAME, 2 * (before + shared) * FRAME

    whole = joined_parts([Heard(first, 0.0, middle, middle - begin), Heard(second, begin, 100.0)], FRAME)

    assert whole.text.split() == texts
    assert whole.frames == list(range(2 * len(texts)))
    assert [word.token_span for word in whole.words] == [(2 * n, 2 * n + 2) for n in range(len(texts))]
    times = [time for word in whole.words for time in (word.start, word.end)]
    assert times == sorted(times)
