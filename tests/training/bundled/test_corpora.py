"""Recordings of public repositories become clips beside a corpus; what it keeps for measuring stays out."""

import json

import numpy as np
import pytest
import soundfile

from training.bundled.corpora import collect
from training.errors import ManifestError
from training.manifest import read_manifest

RATE = 16_000


def speech(path, seconds=2.0, rate=RATE, silence=0.0, level=0.3):
    """Write a tone between silences."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tone = level * np.sin(np.arange(int(seconds * rate)) * 0.2)
    quiet = np.zeros(int(silence * rate))
    soundfile.write(path, np.concatenate([quiet, tone, quiet]), rate)


@pytest.fixture
def corpus(tmp_path):
    """A corpus of one voice that is trained on, so-0001, and one that is not, so-0002."""
    lines = [
        {"audio": "speechocean/1001.opus", "text": "taken", "source": "speechocean", "speaker": "so-0001"},
        {"audio": "speechocean/2001.opus", "text": "kept for later", "source": "speechocean", "speaker": "so-0002"},
        {"audio": "ljspeech/LJ001-0001.opus", "text": "by another", "source": "ljspeech", "speaker": "linda"},
    ]
    for line, split in zip(lines, ["train", "dev", "train"], strict=True):
        line.update(split=split, duration=1.0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.fixture
def checkouts(tmp_path):
    """Two voices of speechocean762, and a few recordings of dc_tts."""
    root = tmp_path / "checkouts" / "speechocean762"
    texts = {"1001": "TAKEN", "1002": "NEW WORDS", "1003": "KEPT FOR LATER", "1004": "No. 9", "2002": "NOT THIS VOICE"}
    for name in texts:
        speech(root / "WAVE" / f"SPEAKER000{name[0]}" / f"{name}.WAV")
    for part in ("train", "test"):
        (root / part).mkdir()
        (root / part / "text").write_text("".join(f"{name}\t{text}\n" for name, text in texts.items()))
    wavs = tmp_path / "checkouts" / "dc_tts" / "LJSpeech-1.1" / "wavs"
    speech(wavs / "LJ001-0001.wav", rate=44_100, silence=1.0)
    speech(wavs / "LJ001-0002.wav", seconds=0.5)
    speech(wavs / "LJ001-0003.wav", seconds=18)
    speech(wavs / "LJ001-0004.wav", level=0)
    (wavs / "LJ001-0005.wav").write_bytes(b"not a recording")
    return root.parent


def test_clips_of_voices_that_are_trained_on_are_taken_unless_they_are_known_or_kept(corpus, checkouts, tmp_path):
    seconds = collect(checkouts, corpus, tmp_path / "out")

    clips = {clip.name: clip for clip in read_manifest(tmp_path / "out" / "manifest.jsonl", "train")}
    of_speechocean = {name: clip.text for name, clip in clips.items() if clip.source == "speechocean"}
    assert of_speechocean == {"speechocean/1002.flac": "new words", "speechocean/1004.flac": None}
    assert seconds["speechocean"] == pytest.approx(4.0, abs=0.1)


def test_a_recording_loses_the_silence_around_it_and_what_is_no_sentence_is_left_out(corpus, checkouts, tmp_path):
    collect(checkouts, corpus, tmp_path / "out")

    (clip,) = (clip for clip in read_manifest(tmp_path / "out" / "manifest.jsonl") if clip.source == "dctts")
    audio = soundfile.info(clip.audio)
    assert (clip.name, clip.speaker, clip.text) == ("dctts/LJ001-0001.flac", "dctts", None)
    assert (audio.samplerate, audio.channels) == (RATE, 1)
    assert clip.seconds == pytest.approx(2.5, abs=0.05)
    assert audio.duration == pytest.approx(clip.seconds, abs=0.001)


def test_a_sentence_of_lj_speech_that_is_kept_for_measuring_is_left_out(corpus, checkouts, tmp_path):
    manifest = corpus / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace('"linda", "split": "train"', '"linda", "split": "dev"'))

    seconds = collect(checkouts, corpus, tmp_path / "out")

    assert seconds["dctts"] == 0


def test_a_folder_without_any_of_the_repositories_is_refused(corpus, tmp_path):
    with pytest.raises(ManifestError, match="holds none of speechocean762"):
        collect(tmp_path, corpus, tmp_path / "out")


@pytest.mark.parametrize("line", ["{}", "nothing", "[]", '{"audio": 3, "split": "train"}'])
def test_a_line_of_the_corpus_that_is_no_clip_is_named(corpus, checkouts, tmp_path, line):
    with (corpus / "manifest.jsonl").open("a") as manifest:
        manifest.write(f"\n{line}\n")

    with pytest.raises(ManifestError, match=r"manifest\.jsonl, line 4: a clip needs audio"):
        collect(checkouts, corpus, tmp_path / "out")


def test_a_manifest_of_the_corpus_that_is_no_text_is_refused(corpus, checkouts, tmp_path):
    (corpus / "manifest.jsonl").write_bytes(b"\xff\xfe")

    with pytest.raises(ManifestError, match=r"manifest\.jsonl: not a text file"):
        collect(checkouts, corpus, tmp_path / "out")
