"""Phrases are in the tree as a model may write them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from models.search.phrases import grow_tree
from models.text.phrases import PhraseTrees, Pieces, written_ways
from models.text.tokenizers import CharacterTokenizer, Vocabulary

PIECES = Pieces(
    {text: token for token, text in enumerate([b" s", b"t", b"e", b"n", b"o", b" ", b"s", b" st", b"en", b" S", b"!"])}
)


def texts(ways):
    by_token = list(PIECES)
    return [[by_token[token] for token in way] for way in ways]


def test_a_phrase_is_divided_into_the_fewest_pieces_in_several_ways():
    assert texts(written_ways("sten", PIECES))[:3] == [[b" st", b"en"], [b" st", b"e", b"n"], [b" s", b"t", b"en"]]


def test_a_phrase_is_written_in_each_case_that_the_vocabulary_has():
    assert [b" S", b"t", b"e", b"n", b"o"] in texts(written_ways("Steno", PIECES))
    assert [b" st", b"en", b"o"] in texts(written_ways("STENO", PIECES))
    assert written_ways("Ada", PIECES) == []


@given(st.text("steno ", min_size=1, max_size=12).map(str.strip).filter(len))
def test_the_pieces_of_each_way_are_the_phrase(text):
    for way in texts(written_ways(text, PIECES)):
        assert b"".join(way).decode().lower() == f" {text}"


def trees(tokenizer):
    return PhraseTrees(Vocabulary(tokenizer), torch.device("cpu"))


def test_lists_are_grown_once_and_rows_without_phrases_have_none(monkeypatch):
    grown, grows = trees(CharacterTokenizer([" a", "b", " b"])), []
    monkeypatch.setattr("models.text.phrases.grow_tree", lambda *of: grows.append(of) or grow_tree(*of))

    assert grown.of_rows(["", ""]) is None
    phrases = grown.of_rows(["ab", "", "ab"])
    assert phrases.start[0] == phrases.start[2] != phrases.start[1]
    grown.of_rows(["ab"])
    assert len(grows) == 1


def test_a_phrase_of_another_list_is_divided_once(monkeypatch):
    grown, divided = trees(CharacterTokenizer(["a", "b", " "])), []
    monkeypatch.setattr("models.text.phrases.written_ways", lambda *of: divided.append(of[0]) or written_ways(*of))

    for lines in ("ab\nb", "b\na\t2", "a\nab"):
        grown.of_rows([lines])

    assert divided == ["ab", "b", "a"]


def test_a_word_that_goes_on_completes_no_phrase():
    phrases = trees(CharacterTokenizer([" a", "b", " b"])).of_rows(["a"])

    _, begun = phrases.score(phrases.start, torch.tensor([0]))
    gains, _ = phrases.score(begun, torch.tensor([1, 2]))
    assert gains.tolist() == [-1.0, 0.0]
    assert float(phrases.score_end(begun)) == 0.0


def test_a_phrase_without_a_piece_for_a_character_has_no_effect():
    phrases = trees(CharacterTokenizer(["a", " "])).of_rows(["xyz"])

    gains, targets = phrases.score(phrases.start[:, None], torch.tensor([[0, 1]]))
    assert gains.tolist() == [[0.0, 0.0]]
    assert targets.tolist() == [[0, 0]]
