"""Manifests of NeMo and Hugging Face are read, and each clip has the samples that it names."""

import csv
import gzip
import io
import json
import struct
import tarfile

import numpy as np
import pyarrow as pa
import pytest
import soundfile

from tests.audio.media_files import sample_of
from training.errors import ManifestError
from training.manifest import read_manifest
from training.takes import Take

RATE = 16_000


def tone(hertz, seconds=1.0, form="WAV"):
    """A tone as a file."""
    file = io.BytesIO()
    time = np.arange(round(seconds * RATE)) / RATE
    soundfile.write(file, (0.5 * np.sin(2 * np.pi * hertz * time)).astype(np.float32), RATE, format=form)
    return file.getvalue()


def pitch(clip):
    samples = Take(clip).samples(RATE)
    return round(np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples))


def tar(path, members):
    with tarfile.open(path, "w") as file:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            file.addfile(about, io.BytesIO(content))


def lines(path, rows):
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def two_tones(path):
    """A second of 300 Hz and one of 500."""
    soundfile.write(path, np.concatenate([soundfile.read(io.BytesIO(tone(hertz)))[0] for hertz in (300, 500)]), RATE)


@pytest.mark.parametrize("name", ["long.wav", "long.flac", "long.ogg", "long.mp3"])
def test_a_clip_of_a_longer_recording_is_the_seconds_that_its_line_names(tmp_path, name):
    two_tones(tmp_path / name)
    rows = [{"audio_filepath": name, "offset": offset, "duration": 0.8, "text": "a"} for offset in (0.0, 1.1)]
    lines(tmp_path / "set.json", rows)

    clips = read_manifest(tmp_path / "set.json")

    assert [pitch(clip) for clip in clips] == [pytest.approx(300, abs=2), pytest.approx(500, abs=2)]
    assert [len(Take(clip).samples(RATE)) for clip in clips] == pytest.approx([0.8 * RATE] * 2, abs=2)
    assert [clip.start for clip in clips] == [0.0, 1.1]


@pytest.mark.parametrize("name", ["long.wav", "long.mp3", "long.aiff"])
@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_a_clip_beyond_the_end_of_its_recording_is_named(tmp_path, name, seconds):
    two_tones(tmp_path / name)
    lines(tmp_path / "set.json", [{"audio": name, "offset": 9, "duration": seconds}])

    with pytest.raises(ManifestError, match=rf"{name} \(.*set\.json, line 1\) lasts 0\.00 s, and not {seconds}"):
        Take(read_manifest(tmp_path / "set.json")[0]).samples(RATE)


def test_a_clip_may_lie_after_the_first_hours_of_a_recording_that_ffmpeg_decodes(tmp_path):
    rate, quiet = 1000, 14_410
    sound = bytes([128]) * (quiet * rate) + bytes([192]) * rate
    # A pipe's header, without sizes, keeps libsndfile away.
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate, 1, 8)
    header = b"RIFF" + bytes(4) + b"WAVEfmt " + form + b"data" + bytes(4)
    (tmp_path / "long.wav").write_bytes(header + sound)
    lines(tmp_path / "set.json", [{"audio": "long.wav", "offset": quiet, "duration": 0.5}])

    samples = read_manifest(tmp_path / "set.json")[0].samples(rate)

    assert samples.tolist() == [0.5] * 500


def test_tars_of_nemo_are_read_member_by_member(tmp_path):
    for shard in (0, 1):
        tar(tmp_path / f"audio_{shard}.tar", {f"{shard}{k}.wav": tone(300 + 100 * shard + 10 * k) for k in (0, 1)})
    rows = [
        {"audio_filepath": f"{shard}{k}.wav", "duration": 1.0, "text": "a", "shard_id": shard}
        for k in (1, 0)
        for shard in (1, 0)
    ]
    lines(tmp_path / "tarred_audio_manifest.json", rows)

    clips = read_manifest(tmp_path / "tarred_audio_manifest.json")

    assert [pitch(clip) for clip in clips] == [410, 310, 400, 300]
    assert [clip.name for clip in clips] == ["11.wav", "01.wav", "10.wav", "00.wav"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "line 1: 'shard_id' is 0, and there is no audio_0.tar"),
        (lambda path: path.write_bytes(b"no tar" * 999), "audio_0.tar is not a readable tar"),
        (lambda path: path.write_bytes(path.read_bytes()[:9_000]), "audio_0.tar"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"b.wav", b"c.wav")), "audio_0.tar is damaged"),
        (lambda path: tar(path, {"other.wav": b""}), "line 1: .*audio_0.tar has no recording a.wav"),
    ],
)
def test_a_bad_tar_is_named(tmp_path, damage, message):
    lines(tmp_path / "set.json", [{"audio_filepath": "a.wav", "duration": 1.0, "text": "a", "shard_id": 0}])
    tar(tmp_path / "audio_0.tar", {"a.wav": tone(300), "b.wav": tone(300)})
    damage(tmp_path / "audio_0.tar")

    with pytest.raises(ManifestError, match=message):
        read_manifest(tmp_path / "set.json")


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_an_audio_folder_is_read(tmp_path, form):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        rows = [{"file_name": f"{k}.flac", "transcription": f"{split} {k}"} for k in range(2)]
        for k in range(2):
            (tmp_path / split / f"{k}.flac").write_bytes(tone(300 + 10 * k, seconds=1 + k, form="FLAC"))
        with (tmp_path / split / f"metadata.{form}").open("w", newline="") as file:
            if form == "csv":
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            else:
                file.write("\n".join(map(json.dumps, rows)))

    clips = read_manifest(tmp_path, "train")

    assert [(clip.text, clip.seconds, pitch(clip)) for clip in clips] == [("train 0", 1.0, 300), ("train 1", 2.0, 310)]


@pytest.mark.parametrize("name", ["m4a", "webm"])
def test_a_recording_whose_header_libsndfile_does_not_read_has_its_length(tmp_path, name):
    content = sample_of(name, lambda rate: np.sin(np.arange(3 * rate) * 600 * np.pi / rate))
    (tmp_path / f"a.{name}").write_bytes(content)
    lines(tmp_path / "metadata.jsonl", [{"file_name": f"a.{name}", "text": "la"}])

    (clip,) = read_manifest(tmp_path)

    assert clip.seconds == pytest.approx(3.0, abs=0.1)
    assert pitch(clip) == pytest.approx(300, abs=2)


def test_an_empty_cell_of_a_table_is_no_value(tmp_path):
    (tmp_path / "a.flac").write_bytes(tone(300, seconds=2, form="FLAC"))
    (tmp_path / "metadata.csv").write_text("file_name,text,duration,language,pnc\na.flac,la,,,\n")

    (clip,) = read_manifest(tmp_path)

    assert (clip.text, clip.seconds, clip.prompt.language, clip.prompt.punctuation) == ("la", 2.0, None, True)


def arrow(path, rows):
    """Rows as `datasets` writes them."""
    table = pa.table(
        {
            "audio": pa.array(
                [{"bytes": content, "path": name} for content, name, _ in rows],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            ),
            "sentence": [text for *_, text in rows],
        }
    )
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)


def test_what_save_to_disk_wrote_is_read_where_it_lies(tmp_path):
    (tmp_path / "beside.wav").write_bytes(tone(900))
    sounds = [(tone(300 + 10 * k), f"{k}.wav", f"number {k}") for k in range(5)]
    arrow(tmp_path / "data-00000-of-00001.arrow", [*sounds, (None, "beside.wav", "beside")])
    arrow(tmp_path / "cache-0123456789abcdef.arrow", sounds[:1])  # as `map` leaves it there

    clips = read_manifest(tmp_path)

    assert [pitch(clip) for clip in clips] == [300, 310, 320, 330, 340, 900]
    assert [clip.text for clip in clips] == [*(text for *_, text in sounds), "beside"]
    assert len({(clip.audio, clip.byte_range) for clip in clips}) == len({clip.name for clip in clips}) == 6


def silent_arrow():
    """An Arrow file without sound."""
    file, table = io.BytesIO(), pa.table({"text": ["a"]})
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "metadata.csv",
            b'file_name,text\na.wav,"begins\n\nand ends"\nb.wav,"never ends\n' + b"c.wav,c\n" * 20_000,
            r"metadata\.csv, line [0-9]+: field larger",
        ),
        (
            "metadata.jsonl",
            b'{"file_name": "a.wav"}\n\n\n' + b"[" * 100_000,
            r"metadata\.jsonl, line [0-9]+: maximum recursion",
        ),
        ("data.arrow", b"", r"data\.arrow is damaged"),
        ("data.arrow", b"no arrow" * 99, r"data\.arrow is damaged"),
        ("data.arrow", silent_arrow(), "no column 'audio', but text"),
        ("train-00000-of-00001.parquet", b"PAR1", "save_to_disk"),
    ],
    ids=["a table", "lines", "empty Arrow", "no Arrow", "silent Arrow", "Parquet"],
)
def test_what_is_bad_in_a_folder_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ManifestError, match=message):
        read_manifest(tmp_path)
