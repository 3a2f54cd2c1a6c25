"""A manifest gives its clips, or names the line that is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.clip import Clip
from training.errors import ManifestError
from training.manifest import read_manifest


def written(folder, *lines):
    path = folder / "set.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def test_clips_have_what_their_lines_say(tmp_path):
    path = written(
        tmp_path,
        {"audio": "a/1.wav", "duration": 2.5, "text": "hello", "source": "books", "speaker": "anna", "other": 1},
        "",
        {"audio": "a/2.wav", "duration": 3},
    )

    assert read_manifest(path) == [
        Clip(tmp_path / "a/1.wav", "a/1.wav", 2.5, "hello", "books", "anna"),
        Clip(tmp_path / "a/2.wav", "a/2.wav", 3.0, None, "set", "set"),
    ]


def test_a_split_leaves_the_others_out(tmp_path):
    path = written(
        tmp_path, {"audio": "1", "duration": 1, "split": "train"}, {"audio": "2", "duration": 1, "split": "dev"}
    )

    assert [clip.name for clip in read_manifest(path, "dev")] == ["2"]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1]",
        "[" * 100_000,
        {"duration": 1},
        {"audio": 5, "duration": 1},
        {"audio": "1", "duration": 1, "text": 7},
        {"audio": "", "duration": 1},
        {"audio": "a\0b", "duration": 1},
        {"audio": "a\ud800b", "duration": 1},
        {"audio": "1", "duration": 1, "text": "a\ud800b"},
        {"audio": "1", "duration": 1, "offset": -1},
        '{"audio": "1", "duration": 1, "offset": NaN}',
        {"audio": "1", "duration": 1, "shard_id": 3},
        {"audio": "1", "duration": 1, "text": "a" * 2**20},
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path, line):
    with pytest.raises(ManifestError, match="line 2"):
        read_manifest(written(tmp_path, {"audio": "1", "duration": 1}, line))


def test_a_key_that_is_null_is_not_there(tmp_path):
    others = dict.fromkeys(("text", "source", "speaker", "offset", "lang", "target_lang", "pnc", "shard_id"))
    path = written(tmp_path, {"audio": "1", "duration": 1}, {"audio": "1", "duration": 1, **others})

    assert len(set(read_manifest(path))) == 1


def test_a_key_that_is_missing_is_called_missing(tmp_path):
    with pytest.raises(ManifestError, match=r"set.jsonl, line 1: 'audio' is missing"):
        read_manifest(written(tmp_path, {"duration": 1}))


@pytest.mark.parametrize(
    "duration", ["NaN", "Infinity", "-Infinity", "-1", "0", "null", "true", '"2"', "[2]", f"1{'0' * 400}", "1e999"]
)
def test_a_clip_without_a_length_is_a_clip_that_cannot_be_used(tmp_path, duration):
    path = written(tmp_path, {"audio": "1", "duration": 1}, f'{{"audio": "2", "duration": {duration}}}', {"audio": "3"})

    clips = read_manifest(path)

    assert [(clip.name, clip.seconds) for clip in clips] == [("1", 1.0), ("2", 0.0), ("3", 0.0)]
    with pytest.raises(ManifestError, match=r"2 \(.*, line 2\) has no duration above 0 in its manifest"):
        clips[1].samples(16_000)


def test_a_manifest_of_nemo_written_on_windows_is_read(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"audio_filepath": "a.wav", "duration": 1.5, "text": "hello"}\r\n')

    assert read_manifest(path) == [Clip(tmp_path / "a.wav", "a.wav", 1.5, "hello", "set", "set")]


def test_a_manifest_without_clips_is_refused(tmp_path):
    with pytest.raises(ManifestError, match="no clips of split 'dev'"):
        read_manifest(written(tmp_path, {"audio": "1", "duration": 1}), "dev")


@pytest.mark.parametrize("content", [None, b"\xff\xff"])
def test_a_manifest_that_cannot_be_read_is_refused(tmp_path, content):
    path = Path(tmp_path / "set.jsonl")
    if content:
        path.write_bytes(content)

    with pytest.raises(ManifestError):
        read_manifest(path)


def test_a_folder_of_librispeech_has_sets_speakers_and_lengths(tmp_path):
    for name in ("dev-clean", "dev-other"):
        chapter = tmp_path / name / "84" / "121123"
        chapter.mkdir(parents=True)
        (chapter / "84-121123.trans.txt").write_text("84-121123-0000 GO DO YOU HEAR\n84-121123-0001 BUT\n")
        soundfile.write(chapter / "84-121123-0000.flac", np.zeros(24_000), 16_000)
        (chapter / "84-121123-0001.flac").write_bytes(b"no sound")

    clips = read_manifest(tmp_path)

    assert [(clip.name, clip.source, clip.speaker) for clip in clips[:2]] == [
        ("84-121123-0000.flac", "dev-clean", "84"),
        ("84-121123-0001.flac", "dev-clean", "84"),
    ]
    assert clips[0].seconds == 1.5
    assert clips[0].text == "GO DO YOU HEAR"
    assert [clip.source for clip in clips] == ["dev-clean", "dev-clean", "dev-other", "dev-other"]
    assert read_manifest(tmp_path, "dev-other") == clips[2:]
    assert read_manifest(tmp_path / "dev-other") == clips[2:]
