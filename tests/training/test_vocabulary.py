"""Text is cut into the pieces of a checkpoint or of a SentencePiece model."""

import tarfile

import pytest

from tests.training.small_run import CHECKPOINT
from training.errors import RecipeError
from training.recipe_shapes import Language
from training.vocabulary import new_vocabulary
from training.vocabulary_file import read_languages, read_vocabulary


def tokenizer_model():
    with tarfile.open(CHECKPOINT) as tar:
        return next(tar.extractfile(member).read() for member in tar if member.name.endswith("_tokenizer.model"))


def test_a_checkpoint_and_its_tokenizer_give_the_same_vocabulary(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer_model())

    of_checkpoint, of_model = read_vocabulary(CHECKPOINT), read_vocabulary(path)

    assert of_checkpoint.model == of_model.model
    assert of_checkpoint.size == 128


def test_encoding_is_undone_by_the_tokenizer():
    vocabulary = read_vocabulary(CHECKPOINT)

    labels = vocabulary.encode("the water was")

    assert vocabulary.tokenizer.join(labels) == "the water was"
    assert all(0 <= label < vocabulary.size for label in labels)
    assert vocabulary.encode("") == []


def test_scores_stand_beside_their_pieces():
    vocabulary = read_vocabulary(CHECKPOINT)

    lines = vocabulary.scores.splitlines()

    assert [line.split("\t")[0] for line in lines] == list(vocabulary.tokenizer.pieces)
    assert all(float(line.split("\t")[1]) <= 0 for line in lines)


def test_a_vocabulary_is_made_of_sentences_and_is_the_same_again(tmp_path):
    sentences = ["the cat sat on the mat", "that hat is at the back", "it's a test of the best"]
    path = tmp_path / "new.model"

    path.write_bytes(new_vocabulary(sentences, 24))

    vocabulary = read_vocabulary(path)
    assert vocabulary.size == 24
    assert new_vocabulary(sentences, 24) == vocabulary.model
    assert [vocabulary.tokenizer.join(vocabulary.encode(text)) for text in sentences] == sentences


@pytest.mark.parametrize(
    ("sentences", "size", "reason"),
    [
        (["only this"], 5000, "that is more pieces than the sentences give"),
        (["only this"], 11, "that is more pieces than the sentences give"),
        ([], 24, "that is more pieces than the sentences give"),
        (["only this"], 9, "the unknown piece and a piece for each character are 10"),
        (["this"], 3, "the unknown piece and a piece for each character are 6"),
    ],
)
def test_a_vocabulary_too_large_or_too_small_for_its_sentences_is_refused(sentences, size, reason):
    with pytest.raises(RecipeError, match=f"^no vocabulary of {size}: {reason}$"):
        new_vocabulary(sentences, size)


def test_a_vocabulary_may_have_just_its_characters_and_the_unknown_piece(tmp_path):
    path = tmp_path / "new.model"
    path.write_bytes(new_vocabulary(["this"], 6))

    assert read_vocabulary(path).size == 6


def test_a_folder_is_refused_with_what_has_labels(tmp_path):
    with pytest.raises(RecipeError, match=r"is a folder, and not a SentencePiece model or a \.nemo checkpoint"):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    "name", ["there_is_no.model", "there_is_no.nemo", "empty.model", "nonsense.model", "nonsense.nemo", "x" * 300]
)
def test_a_file_that_is_not_a_vocabulary_is_named(tmp_path, name):
    path = tmp_path / name
    if name.startswith(("empty", "nonsense")):
        path.write_bytes(b"" if name.startswith("empty") else b"nonsense" * 100)

    with pytest.raises(RecipeError, match=name) as raised:
        read_vocabulary(path)

    assert "\n" not in str(raised.value)
    assert "sentencepiece_processor" not in str(raised.value)


def test_a_language_without_its_file_is_named_by_the_key_of_languages(tmp_path):
    with pytest.raises(RecipeError, match=r"gone\.model: No such file") as raised:
        read_languages((Language(code="en", vocabulary=tmp_path / "gone.model"),))

    assert raised.value.key == "languages"
