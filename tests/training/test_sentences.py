import pytest

from training.errors import TrainingError
from training.sentences import read_sentences


def test_sentences_are_the_lines_that_are_not_empty(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfit rained\n\n  she isn't\there \r\nlast")

    assert read_sentences(path) == ["it rained", "she isn't here", "last"]


@pytest.mark.parametrize("name", ["train.jsonl", "train.json"])
def test_the_sentences_of_a_manifest_are_its_transcripts(tmp_path, name):
    lines = ['{"audio": "a.flac", "duration": 1, "text": "it rained"}', "", '{"audio": "b.flac", "duration": 2}']
    (tmp_path / name).write_text("\n".join([*lines, '{"audio_filepath": "c.flac", "text": " she left "}']))

    assert read_sentences(tmp_path / name) == ["it rained", "she left"]


def test_the_sentences_of_a_folder_of_librispeech_are_its_transcripts(tmp_path):
    (tmp_path / "1-2.trans.txt").write_text("1-2-0000 IT RAINED\n")

    assert read_sentences(tmp_path) == ["IT RAINED"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.txt", b"", "has no sentences"),
        ("text.txt", b"\n \n", "has no sentences"),
        ("train.jsonl", b'{"audio": "a.flac", "duration": 1}', "has no sentences"),
        ("text.txt", b"\xff\xfe", "not a text file"),
        ("text.txt", None, "No such file"),
    ],
)
def test_a_text_that_cannot_be_read_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(TrainingError, match=message) as error:
        read_sentences(path)

    assert str(path) in str(error.value)
