"""Words and their times, as a model writes them between its other tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.search.result import UtteranceTokens
from models.text.tokenizers import PromptedVocabulary
from models.text.written_words import written_words

PIECES = ("<|nospeech|>", "<pad>", "<|en|>", "<|0|>", "<|7|>", "<|12|>", "▁the", "▁fer", "ry", ".", "▁", "▁?")


class Pieces:
    kind = "aggregate"
    pieces = PIECES

    def join(self, tokens):
        return b"".join(map(self.token_bytes, tokens)).decode()

    def token_bytes(self, token):
        return PIECES[token].replace("▁", " ").encode()


VOCABULARY = PromptedVocabulary(Pieces())


def heard(*pieces):
    tokens = [PIECES.index(piece) for piece in pieces]
    confidence = [1 - index / 100 for index in range(len(tokens))]
    return UtteranceTokens(tokens, None, None, None, confidence)


def words(*pieces):
    found = written_words(heard(*pieces), VOCABULARY, lambda frame: frame / 10)
    return [(word.text, word.start, word.end) for word in found]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("▁the", "▁fer", "ry", "."), [("the", None, None), ("ferry.", None, None)]),
        (("<|0|>", "▁the", "<|7|>", "<|7|>", "▁fer", "ry", "<|12|>"), [("the", 0.0, 0.7), ("ferry", 0.7, 1.2)]),
        (("<|0|>", "▁the", "▁fer", "ry", "<|7|>"), [("the ferry", 0.0, 0.7)]),
        (
            ("<|0|>", "▁the", "<|7|>", "▁fer", "ry", "▁the"),
            [("the", 0.0, 0.7), ("ferry", None, None), ("the", None, None)],
        ),
        (("▁the", "<|7|>"), [("the", None, None)]),
        (("<|12|>", "▁the", "<|7|>"), [("the", None, None)]),
        (("<|nospeech|>",), []),
        (("<|7|>", "<|12|>"), []),
        (("▁", "ry", "▁?"), [("ry", None, None), ("?", None, None)]),
        ((), []),
    ],
    ids=str,
)
def test_a_word_has_the_times_it_stands_between(pieces, expected):
    assert words(*pieces) == expected


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_words_are_the_text_and_their_tokens_are_their_own(pieces):
    row = heard(*pieces)

    found = written_words(row, VOCABULARY, float)

    # Between frames, words that the model wrote no space between are words all the same.
    assert "".join("".join(word.text for word in found).split()) == "".join(VOCABULARY.text(row.tokens).split())
    spans = [word.token_span for word in found]
    assert spans == sorted(spans)
    for word in found:
        first, last = word.token_span
        assert VOCABULARY.text(row.tokens[first:last]) == word.text
        assert word.confidence == min(row.confidence[first:last])
        assert (word.start is None) == (word.end is None)


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_bytes_of_tokens_are_the_text_without_what_is_special(pieces):
    row = heard(*pieces)

    text = b"".join(VOCABULARY.token_bytes[token] for token in row.tokens).decode()

    assert text.strip() == VOCABULARY.text(row.tokens)
