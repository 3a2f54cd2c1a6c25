import json
from collections import Counter
from itertools import count
from threading import Lock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.bundled import synthesis
from training.bundled.flite import SAMPLE_RATE, UnusableSpeechError
from training.bundled.synthesis import Readings, synthesize
from training.errors import TrainingError
from training.manifest import read_manifest
from training.takes import Take

ALICE, BOB, MUTE = "alice", "bob", "mute"
VOICES = ["slt", "awb", "kal16", "kal"]
SENTENCES = [f"she wore the heavy coat {number}" for number in range(7)]
numbers = st.integers(0, 10**6)


def said(reading):
    """Speak as a voice of Flite would: a tone of a second or two, or nothing."""
    if reading.voice == MUTE:
        raise UnusableSpeechError("the synthesizer failed")
    seconds = {ALICE: 1.0, BOB: 2.0}[reading.voice] / reading.speed
    return np.sin(np.arange(int(seconds * SAMPLE_RATE)) / 20).astype(np.float32) / 2


def make(folder, voices=(ALICE, BOB), seconds=20, say=said):
    return synthesize(Readings(SENTENCES, voices, seed=0), folder, seconds=seconds, say=say)


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lines(folder):
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def test_training_reads_what_was_made(tmp_path):
    tally = make(tmp_path)

    clips = read_manifest(tmp_path / "manifest.jsonl", split="train")
    assert (len(clips), sum(clip.seconds for clip in clips)) == (tally.clips, pytest.approx(tally.seconds))
    assert tally.seconds >= 20 > tally.seconds - clips[-1].seconds
    assert {(clip.source, clip.speaker) for clip in clips} == {("flite", "flite/alice"), ("flite", "flite/bob")}
    assert clips[1].audio == tmp_path / "clips" / "0000" / "0000001.flac"
    assert clips[1].text == Readings(SENTENCES, (ALICE, BOB), seed=0).draw(1).sentence
    expected = said(Readings(SENTENCES, (ALICE, BOB), seed=0).draw(1))
    np.testing.assert_allclose(Take(clips[1]).samples(SAMPLE_RATE), expected, atol=1e-4)


def test_the_same_comes_out_again_with_any_number_of_threads(tmp_path, monkeypatch):
    for threads in (1, 4):
        monkeypatch.setattr(synthesis, "processors", lambda threads=threads: threads)
        make(tmp_path / str(threads))

    assert content(tmp_path / "1") == content(tmp_path / "4")


def test_clips_of_a_run_that_ended_early_are_in_no_manifest(tmp_path):
    lock, said_so_far = Lock(), count()

    def failing(reading):
        with lock:
            if next(said_so_far) == 5:
                raise OSError("the disk is full")
        return said(reading)

    with pytest.raises(OSError, match="the disk is full"):
        make(tmp_path, say=failing)
    assert not (tmp_path / "manifest.jsonl").exists()

    make(tmp_path)
    assert len(lines(tmp_path)) > 5


def test_a_sentence_that_comes_out_wrong_is_said_by_another_voice(tmp_path):
    tally = make(tmp_path, (ALICE, MUTE))

    found = lines(tmp_path)
    assert {line["speaker"] for line in found} == {"flite/alice"}
    assert 0 < tally.left_out < 20
    assert tally.refused["the synthesizer failed"] > 3 * tally.left_out
    # All three attempts at a sentence that is missing went to the mute voice.
    assert found[-1]["number"] == tally.clips + tally.left_out - 1


def test_synthesis_ends_after_twenty_failed_sentences(tmp_path):
    with pytest.raises(TrainingError, match="20 sentences in a row came out wrong: the synthesizer failed"):
        make(tmp_path, (MUTE,))


@given(seed=st.integers(0, 2**31), numbers=st.lists(numbers, min_size=1, max_size=10), attempt=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_a_reading_depends_on_seed_number_and_attempt_only(seed, numbers, attempt):
    forth, back, other = (Readings(SENTENCES, VOICES, one) for one in (seed, seed, seed + 1))

    drawn = [forth.draw(number, attempt) for number in numbers]

    assert drawn == [back.draw(number, attempt) for number in reversed(numbers)][::-1]
    assert drawn != [other.draw(number, attempt) for number in numbers]


@given(seed=st.integers(0, 2**31), rounds=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_every_sentence_is_read_once_before_any_is_read_again(seed, rounds):
    readings = Readings(SENTENCES, VOICES, seed)

    assert sorted(readings.draw(number).sentence for number in range(7 * rounds, 7 * rounds + 7)) == SENTENCES


@given(seed=st.integers(0, 2**31), number=numbers)
@settings(max_examples=50, deadline=None)
def test_another_attempt_has_the_same_sentence_in_another_manner(seed, number):
    readings = Readings(SENTENCES, VOICES, seed)

    first, second = readings.draw(number), readings.draw(number, attempt=1)

    assert first.sentence == second.sentence
    assert (first.speed, first.pitch) != (second.speed, second.pitch)
    assert 0.75 <= first.speed <= 1.3
    assert 0.8 <= first.pitch <= 1.25


def test_each_voice_speaks_as_often_as_the_others():
    readings = Readings(SENTENCES, VOICES, seed=0)

    heard = Counter(readings.draw(number).voice for number in range(1000))

    assert set(heard) == set(VOICES)
    assert all(200 < times < 300 for times in heard.values())
