from hypothesis import given
from hypothesis import strategies as st

from service.dispatch.joining import joined, shifted
from service.engine.protocol import Transcript, Word


def heard(*texts: str) -> Transcript:
    """A transcript in which each word has two tokens and lasts a tenth of a second."""
    words = [Word(text, n / 10, (n + 1) / 10, 0.5, (2 * n, 2 * n + 2)) for n, text in enumerate(texts)]
    tokens = [ord(text[0]) for text in texts for _ in range(2)]
    return Transcript(" ".join(texts), tokens, [0.5] * len(tokens), words)


WORDS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=5)


@given(st.lists(WORDS, max_size=6))
def test_a_joined_transcript_has_everything_once_and_each_word_its_own_tokens(parts):
    whole = joined(heard(*texts) for texts in parts)

    words = [text for texts in parts for text in texts]
    assert whole.text.split() == words
    assert "  " not in whole.text
    assert [word.text for word in whole.words] == words
    assert len(whole.tokens) == len(whole.token_confidence) == 2 * len(words)
    for word in whole.words:
        begin, end = word.token_span
        assert whole.tokens[begin:end] == [ord(word.text[0])] * 2


def test_times_become_those_of_the_recording_to_the_millisecond():
    moved = shifted(heard("a", "b"), 12.3456)

    assert [(word.start, word.end) for word in moved.words] == [(12.346, 12.446), (12.446, 12.546)]
    assert moved.text == "a b"


def test_a_time_that_is_not_known_stays_unknown():
    part = Transcript("a", [97], [0.5], [Word("a", None, None, 0.5, (0, 1))])

    assert shifted(part, 12.5).words == part.words
