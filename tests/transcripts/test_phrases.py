"""Lists of phrases are lines of text within limits, from files and as they are given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.phrases import Phrase, PhraseError, parse_phrases, phrase_lines, read_phrases

words = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=9)
phrases = st.builds(Phrase, words, st.sampled_from([0.25, 1.0, 2.5]))


@given(st.lists(phrases, max_size=9, unique_by=lambda phrase: phrase.text))
def test_lines_hold_the_phrases(given):
    assert parse_phrases(phrase_lines(given)) == given


def test_white_space_is_one_space_and_what_has_no_weight_or_text_is_left_out():
    given = [Phrase(" Ada \t\n Lovelace "), Phrase("nobody", 0.0), Phrase(" "), Phrase("Ada Lovelace")]

    assert phrase_lines(given) == "Ada Lovelace"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ([Phrase(f"name {number}") for number in range(1001)], "1001 phrases are more than 1000"),
        ([Phrase("x" * 201)], "has 201 bytes, more than 200"),
        ([Phrase(f"{number:0100}") for number in range(700)], "phrases of 70699 bytes are more than 32768"),
        ([Phrase("loud", 11.0)], "the weight 11 of 'loud' is not between 0 and 10"),
        ([Phrase("quiet", -1.0)], "the weight -1"),
        ([Phrase("what", float("nan"))], "the weight nan"),
        ([Phrase("\ud800")], "is not Unicode text"),
    ],
    ids=["number", "bytes of one", "bytes of all", "weight", "negative", "nan", "surrogate"],
)
def test_what_is_too_much_or_no_phrase_is_refused(given, fault):
    with pytest.raises(PhraseError, match=fault):
        phrase_lines(given)


def test_a_file_has_a_phrase_a_line(tmp_path):
    file = tmp_path / "names"
    file.write_bytes("\ufeffAda Lovelace\r\n\nSteno\t2.5\n".encode())

    assert read_phrases(file) == "Ada Lovelace\nSteno\t2.5"


@pytest.mark.parametrize("content", [None, b"Steno\tloud", b"\xff", b"Steno\t11"], ids=str)
def test_a_wrong_file_is_named(tmp_path, content):
    file = tmp_path / "names"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(PhraseError, match=str(file)):
        read_phrases(file)
