"""The recordings of a job are found in manifests, folders and prefixes; errors name a manifest's wrong line."""

import json
import os

import fsspec
import pytest

from bulk.entries import entries
from bulk.errors import JobError


@pytest.fixture
def archive(tmp_path):
    for name, size in {
        "a.wav": 64_000,
        "deep/b.FLAC": 160_000,
        "notes.txt": 10,
        ".hidden.wav": 10,
        ".cache/c.wav": 10,
        "empty.mp3": 0,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))
    return tmp_path


@pytest.fixture
def manifest(tmp_path):
    def write(*lines):
        path = tmp_path / "manifest.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return str(path)

    return write


def test_a_folder_gives_its_recordings_by_name_with_lengths_by_their_size(archive):
    os.mkfifo(archive / "pipe.wav")
    (archive / "link.wav").symlink_to(archive / "a.wav")

    found = {entry.audio: entry for entry in entries(str(archive))}

    assert found.keys() == {"a.wav", "deep/b.FLAC", "empty.mp3", "link.wav"}
    assert found["deep/b.FLAC"].location == str(archive / "deep/b.FLAC")
    assert (found["a.wav"].seconds, found["deep/b.FLAC"].seconds, found["empty.mp3"].seconds) == (2, 10, 10)


@pytest.mark.parametrize("source", [".", "manifest.jsonl"])
def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path, source):
    name = os.fsdecode(b"caf\xe9.wav")
    (tmp_path / name).write_bytes(bytes(32_000))
    (tmp_path / "manifest.jsonl").write_text(json.dumps({"audio": name}))

    (found,) = entries(str(tmp_path / source))

    assert found.audio == r"caf\udce9.wav"
    assert found.location == str(tmp_path / name)


def test_a_prefix_of_an_object_store_is_like_a_folder():
    store = fsspec.filesystem("memory")
    store.pipe({"/archive/a.wav": bytes(64_000), "/archive/deep/b.flac": bytes(160_000), "/archive/notes.txt": b"-"})

    found = {entry.audio: entry for entry in entries("memory://archive")}

    assert found.keys() == {"a.wav", "deep/b.flac"}
    assert fsspec.open(found["deep/b.flac"].location).fs.cat(found["deep/b.flac"].location) == bytes(160_000)
    assert found["a.wav"].seconds == 2


def test_a_manifest_names_paths_beside_it_absolute_ones_and_urls(archive, manifest):
    path = manifest(
        {"audio": "a.wav", "duration": 7},
        {"audio_filepath": "/elsewhere/b.wav", "duration": 1.5, "text": "of NeMo"},
        "",
        {"audio": "memory://archive/c.wav"},
        {"audio": "deep/b.FLAC"},
    )

    found = {entry.audio: (entry.location, entry.seconds) for entry in entries(path)}

    assert found == {
        "a.wav": (str(archive / "a.wav"), 7),
        "/elsewhere/b.wav": ("/elsewhere/b.wav", 1.5),
        "memory://archive/c.wav": ("memory://archive/c.wav", 10),
        "deep/b.FLAC": (str(archive / "deep/b.FLAC"), 10),
    }


def test_a_manifest_in_an_object_store_names_what_lies_beside_it():
    fsspec.filesystem("memory").pipe({"/list/manifest.jsonl": b'{"audio": "day/a.wav", "duration": 3}\n'})

    (found,) = entries("memory://list/manifest.jsonl")

    assert (found.location, found.seconds) == ("memory://list/day/a.wav", 3)


def test_a_recording_that_is_listed_twice_is_one(manifest):
    assert len(entries(manifest({"audio": "a.wav", "duration": 1}, {"audio": "a.wav", "duration": 1}))) == 1


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "not a JSON object: Expecting property name enclosed in double quotes at column 2"),
        ("[" * 100_000, "recursion"),
        ("[1]", "not a JSON object"),
        ({"duration": 1}, "'audio' must be the path or the URL of a recording"),
        ({"audio": 5}, "'audio' must be the path or the URL of a recording"),
        ({"audio": "\ud83c.wav", "duration": 1}, "surrogates not allowed"),
        ({"audio": "a\0.wav"}, "'audio' must be the path or the URL of a recording"),
        ({"audio": "a.wav", "duration": -1}, "'duration' must be a number of seconds above 0"),
        ({"audio": "a.wav", "duration": 10**400}, "too large"),
        ({"audio": "a.wav", "duration": True}, "'duration' must be a number of seconds above 0"),
        ('{"audio": "a.wav", "duration": NaN}', "'duration' must be a number of seconds above 0"),
        ({"audio": "a.wav", "duration": 4, "offset": 60}, "'offset' is not supported"),
    ],
)
def test_a_bad_line_is_named(manifest, line, error):
    path = manifest({"audio": "a.wav", "duration": 1}, line)

    with pytest.raises(JobError, match="line 2: ") as raised:
        entries(path)

    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_recording_is_no_manifest(tmp_path):
    (tmp_path / "a.mp3").write_bytes(b"\xff\xfb\x90")

    with pytest.raises(JobError, match=r"a\.mp3: not a text file"):
        entries(str(tmp_path / "a.mp3"))


def test_errors_in_an_object_store_are_said_as_those_of_files_are():
    with pytest.raises(JobError) as raised:
        entries("memory://nothing/manifest.jsonl")
    assert str(raised.value) == "memory://nothing/manifest.jsonl: No such file or directory"

    fsspec.filesystem("memory").pipe({"/wrong/manifest.jsonl": b"{}"})
    with pytest.raises(JobError) as raised:
        entries("memory://wrong/manifest.jsonl")
    assert str(raised.value).startswith("memory://wrong/manifest.jsonl, line 1: 'audio' must be")
