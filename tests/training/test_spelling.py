"""Transcripts are written with the characters of the vocabulary; what it cannot write is counted and refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.small_run import CHECKPOINT, manifest, new_run
from training.errors import ManifestError
from training.vocabulary import PieceVocabulary, new_vocabulary
from training.vocabulary_file import read_vocabulary

SENTENCES = ["it's what he said to her", "well known men and women", "the quick brown fox jumps over a lazy dog"]


@pytest.fixture(scope="module")
def lower():
    return PieceVocabulary(new_vocabulary(SENTENCES, 32))


@pytest.fixture(scope="module")
def cased():
    return PieceVocabulary(new_vocabulary([*SENTENCES, *(text.upper() + "." for text in SENTENCES)], 60))


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("IT'S WHAT HE SAID", "it's what he said"),
        ("It\u2019s what he said, to her.", "it's what he said to her"),
        ("Well-known men (and women)!", "well known men and women"),
        ("said \u2014 to her", "said to her"),
    ],
)
def test_texts_take_the_case_of_the_pieces_and_lose_marks_that_have_none(lower, text, spelled):
    assert lower.spelled(text) == (spelled, set())
    assert lower.encode(text) == lower.encode(spelled)
    assert lower.tokenizer.join(lower.encode(text)) == spelled


def test_a_vocabulary_with_both_cases_keeps_the_case(cased):
    assert cased.spelled("The QUICK fox.") == ("The QUICK fox.", set())


def test_letters_and_digits_without_a_piece_are_named(lower):
    assert lower.spelled("He said 3 times na\u00efve!")[1] == {"3", "\u00ef"}


@given(st.text("abcxyzABCXYZ ',.!-\u2019"))
def test_what_is_spelled_has_no_unknown_piece_and_stays_as_it_is(lower, text):
    spelled, lacking = lower.spelled(text)

    assert lower.spelled(spelled) == (spelled, set())
    assert not lacking
    assert 0 not in lower.encode(text)


@pytest.mark.golden
def test_a_corpus_in_capitals_trains_a_lower_case_model_as_its_own_texts_do(tmp_path):
    runs = []
    for name, change in (("lower", str.lower), ("upper", str.upper)):
        folder = tmp_path / name
        folder.mkdir()
        path = manifest(folder)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row | {"text": change(row["text"])}) + "\n" for row in rows))
        runs.append(new_run(folder))
    ours, capitals = runs

    assert capitals.takes.labels.tolist() == ours.takes.labels.tolist()
    assert any("written as it writes" in line for line in capitals.survey)
    assert not any("written as it writes" in line for line in ours.survey)


@pytest.mark.golden
def test_a_corpus_that_the_vocabulary_cannot_write_is_refused_with_its_characters(tmp_path):
    path = manifest(tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row | {"text": "\u043f\u0440\u0438\u0432\u0435\u0442"}) + "\n" for row in rows))
    assert read_vocabulary(CHECKPOINT).spelled("\u043f\u0440")[1]

    with pytest.raises(ManifestError, match=r"\u0432 \u0435 \u0438 .*unknown_share"):
        new_run(tmp_path)
