"""A manifest is JSON Lines or a LibriSpeech folder; a mistake in it is named with its line."""

import json

import pytest

from bulk.errors import JobError
from cli.errors import CommandError
from cli.references import Reference, read_references


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_audio_is_found_beside_the_manifest(tmp_path):
    manifest = write(
        tmp_path / "clips.jsonl",
        {"audio": "a/1.flac", "text": "one", "source": "digits", "split": "dev", "duration": 1.5, "speaker": "x"},
        {"audio": "/data/2.flac", "text": ""},
    )

    assert read_references(manifest) == [
        Reference(tmp_path / "a" / "1.flac", "one", "digits", "dev"),
        Reference(tmp_path.joinpath("/data/2.flac"), "", "clips", None),
    ]


def test_a_manifest_of_nemo_written_on_windows_is_read(tmp_path):
    path = tmp_path / "set.json"
    path.write_bytes(b'\xef\xbb\xbf{"audio_filepath": "a.wav", "text": "one", "duration": 1.0}\r\n')

    assert read_references(path) == [Reference(tmp_path / "a.wav", "one", "set")]


def test_a_librispeech_folder_has_its_transcripts_beside_the_audio(tmp_path):
    chapter = tmp_path / "dev-clean" / "84" / "121123"
    chapter.mkdir(parents=True)
    (chapter / "84-121123.trans.txt").write_text("84-121123-0000 GO DO YOU HEAR\n84-121123-0001 BUT IN LESS\n")

    assert read_references(tmp_path / "dev-clean") == [
        Reference(chapter / "84-121123-0000.flac", "GO DO YOU HEAR", "dev-clean"),
        Reference(chapter / "84-121123-0001.flac", "BUT IN LESS", "dev-clean"),
    ]


def test_each_set_of_librispeech_is_a_source(tmp_path):
    for name in ("dev-clean", "dev-other"):
        chapter = tmp_path / name / "84" / "121123"
        chapter.mkdir(parents=True)
        (chapter / "84-121123.trans.txt").write_text("84-121123-0000 GO\n")

    assert [clip.source for clip in read_references(tmp_path)] == ["dev-clean", "dev-other"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"text": "one"}', "'audio' is missing"),
        ('{"audio": 1, "text": "one"}', "'audio' must be a string"),
        (r'{"audio": "a\u0000.wav", "text": "one"}', "'audio' must be the path of a recording"),
        (r'{"audio": "\ud83c.wav", "text": "one"}', "surrogates not allowed"),
        ('{"audio": "a.wav", "text": 1}', "'text' must be a string"),
        ('{"audio": "a.wav", "text": "one", "source": []}', "'source' must be a string"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    manifest = tmp_path / "clips.jsonl"
    manifest.write_text('{"audio": "a.wav", "text": "one"}\n' + line + "\n")

    with pytest.raises(JobError, match=f"line 2: .*{complaint}"):
        read_references(manifest)


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"none\.jsonl: No such file"):
        read_references(tmp_path / "none.jsonl")
