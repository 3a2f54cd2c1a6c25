import lzma

import pytest

from training.errors import TrainingError
from training.sentences import read_sentences


@pytest.mark.parametrize("name", ["text.txt", "text.txt.xz"])
def test_sentences_are_the_lines_that_are_not_empty(tmp_path, name):
    path = tmp_path / name
    content = "it rained\n\n  she isn't here \r\nlast"
    (path.write_bytes if name.endswith("txt") else lambda data: path.write_bytes(lzma.compress(data)))(content.encode())

    assert read_sentences(path) == ["it rained", "she isn't here", "last"]


@pytest.mark.parametrize("name", ["train.jsonl", "train.json"])
def test_the_sentences_of_a_manifest_are_its_transcripts(tmp_path, name):
    lines = ['{"audio": "a.flac", "duration": 1, "text": "it rained"}', "", '{"audio": "b.flac", "duration": 2}']
    (tmp_path / name).write_text("\n".join([*lines, '{"audio_filepath": "c.flac", "text": " she left "}']))

    assert read_sentences(tmp_path / name) == ["it rained", "she left"]


def test_the_sentences_of_a_folder_of_librispeech_are_its_transcripts(tmp_path):
    (tmp_path / "1-2.trans.txt").write_text("1-2-0000 IT RAINED\n")

    assert read_sentences(tmp_path) == ["IT RAINED"]


def test_a_manifest_without_transcripts_has_no_sentences(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"audio": "a.flac", "duration": 1}')

    with pytest.raises(TrainingError, match="has no sentences"):
        read_sentences(tmp_path / "train.jsonl")


def test_a_byte_order_mark_is_no_part_of_the_first_sentence(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("it rained\n", encoding="utf-8-sig")

    assert read_sentences(path) == ["it rained"]


def test_a_sentence_may_have_a_thousand_characters(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a" * 1000 + "\nlast\n")

    assert read_sentences(path) == ["a" * 1000, "last"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no sentences"),
        (b"\n \n", "has no sentences"),
        (b"fine\n" + b"a" * 1001, "line 2: longer than 1000 characters"),
        (b"fine\nbad\0\n", "line 2: holds an unprintable character"),
        (b"\xff\xfe", "not a text file"),
        (None, "No such file"),
    ],
)
def test_a_text_that_cannot_be_said_is_named(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(TrainingError, match=message) as error:
        read_sentences(path)

    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"not an archive", lzma.compress(b"it rained\n" * 1000)[:-20]])
def test_an_archive_that_is_damaged_is_named(tmp_path, content):
    path = tmp_path / "text.xz"
    path.write_bytes(content)

    with pytest.raises(TrainingError, match=r"text\.xz"):
        read_sentences(path)


def test_what_an_archive_unpacks_to_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("training.sentences._LARGEST_TEXT", 10_000)
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(b"it rained\n" * 1001))

    with pytest.raises(TrainingError, match="more than 10,000 characters"):
        read_sentences(path)
