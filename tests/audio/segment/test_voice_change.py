"""The voice changes where two normal distributions describe the spectra of speech better than one."""

import numpy as np
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.segment.voice_activity import SpeechDetector
from audio.segment.voice_change import bands_of, voice_changes


def runs_of(lengths, voices, seed=0):
    """Runs of speech by voices, each a normal distribution of 20 bands."""
    draw, fixed = np.random.default_rng(seed), np.random.default_rng(1)
    means, scales = 4 * fixed.standard_normal((3, 20)), np.exp(fixed.standard_normal((3, 20)))
    return [
        (means[voice] + scales[voice] * draw.standard_normal((length, 20))).astype(np.float32)
        for length, voice in zip(lengths, voices, strict=True)
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(60, 120), st.integers(0, 2)), min_size=1, max_size=8), st.integers(0, 99))
def test_each_change_of_voice_is_found_and_no_other(runs, seed):
    lengths, voices = zip(*runs, strict=True)

    found = voice_changes(runs_of(lengths, voices, seed))

    assert found == [index for index in range(1, len(voices)) if voices[index] != voices[index - 1]]


def test_a_change_among_hundreds_of_runs_is_found():
    assert voice_changes(runs_of([40] * 700, [0] * 200 + [1] * 500)) == [200]


def test_a_word_is_too_short_to_be_another_voice():
    assert voice_changes(runs_of([100, 10], [0, 1])) == []
    assert voice_changes(runs_of([10, 0, 10], [0, 1, 2])) == []


def test_two_people_are_two_voices_and_each_is_one(golden):
    def speech(name):
        samples, _ = soundfile.read(golden / "clips" / f"{name}.wav", dtype="float32")
        probabilities, frames = SpeechDetector().stream().push(samples)
        return bands_of(frames)[probabilities > 0.5]

    one, other = speech("awb-4s"), speech("rms-6s")

    assert voice_changes([one, other]) == [1]
    assert voice_changes(np.array_split(one, 2)) == []
    assert voice_changes(np.array_split(other, 2)) == []
