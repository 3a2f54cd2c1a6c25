"""From token ids to text, as SentencePiece and NeMo have it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.tokenizers import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    Vocabulary,
)
from tests.models.checkpoint.nemo_files import TOKENIZER, golden_members
from tests.models.checkpoint.sentencepiece_models import sentencepiece_model


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes for what it has not seen, one piece printed as it stands, and marks of the start and the end."""
    return SentencePieceTokenizer(sentencepiece_model(300, ("<|en|>",), byte_fallback=True, hard_vocab_limit=False))


@pytest.fixture(scope="module")
def golden_vocabulary():
    return Vocabulary(SentencePieceTokenizer(golden_members()[TOKENIZER]))


def ids(tokenizer, *pieces):
    return [tokenizer.pieces.index(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("▁the", "re", "▁is"), "there is"),
        (("▁is", "<unk>"), "is ⁇ "),
        (("▁is", "▁", "?", "▁", "!", "▁so"), "is?! so"),
        ((), ""),
    ],
)
def test_the_first_space_goes_and_those_before_a_punctuation_mark(golden_vocabulary, pieces, text):
    assert golden_vocabulary.text(ids(golden_vocabulary, *pieces)) == text


def test_bytes_become_characters(tokenizer):
    euro = [f"<0x{byte:02X}>" for byte in "€".encode()]

    assert tokenizer.join(ids(tokenizer, "▁the", "▁", *euro)) == "the €"


def test_control_pieces_vanish_and_defined_ones_stay(tokenizer):
    assert tokenizer.join(ids(tokenizer, "<s>", "▁the", "<|en|>", "</s>")) == "the<|en|>"


@given(st.lists(st.sampled_from(["▁the", "▁c", "at", "▁", ",", "<s>", "<|en|>", "€", "é"]), max_size=8))
def test_bytes_of_tokens_one_after_the_other_are_the_text_with_spaces_before_it(tokenizer, pieces):
    bytewise = [[f"<0x{byte:02X}>" for byte in piece.encode()] if piece in "€é" else [piece] for piece in pieces]
    tokens = ids(tokenizer, *(part for parts in bytewise for part in parts))

    written = b"".join(Vocabulary(tokenizer).token_bytes[token] for token in tokens)

    assert written.decode().lstrip(" ") == tokenizer.join(tokens)


def test_bytes_of_characters_and_of_the_unknown_are_what_is_shown(golden_vocabulary):
    (unknown,) = ids(golden_vocabulary, "<unk>")

    assert Vocabulary(CharacterTokenizer(["a", " ", "é"])).token_bytes == (b"a", b" ", "é".encode())
    assert golden_vocabulary.token_bytes[unknown] == " ⁇ ".encode()


def test_a_vocabulary_without_punctuation_keeps_its_spaces():
    vocabulary = Vocabulary(CharacterTokenizer(["a", " ", "<!>", "▁."]))

    assert vocabulary.punctuation == frozenset()
    assert vocabulary.text([0, 1, 1, 0]) == "a  a"


def test_punctuation_is_what_pieces_within_words_hold():
    vocabulary = Vocabulary(CharacterTokenizer(["a", "b-", "'", "▁!", "<?>", "[.]", "##;", "€", "]", "^"]))

    assert vocabulary.punctuation == {"-", "'", "]"}


def test_punctuation_that_means_something_in_a_pattern_is_taken_literally():
    vocabulary = Vocabulary(CharacterTokenizer(["a", " ", "]", "-", "\\", "z"]))

    assert vocabulary.text([0, 1, 2, 1, 3, 1, 4, 1, 5, 1, 0]) == "a]-\\ z a"
