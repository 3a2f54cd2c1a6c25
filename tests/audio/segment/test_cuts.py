"""Recordings are cut in pauses."""

from itertools import pairwise

import numpy as np
import pytest
import soundfile

from audio.recording import Recording
from audio.segment.cuts import cuts
from audio.segment.segmenter import Segment, SegmentRule
from audio.segment.voice_activity import RATE, SpeechDetector


@pytest.fixture(scope="module")
def detector():
    return SpeechDetector()


@pytest.fixture(scope="module")
def voices(golden):
    return [soundfile.read(golden / "clips" / f"{name}.wav", dtype="float32")[0] for name in ("awb-4s", "rms-6s")]


def cut(detector, samples, rule, rate=RATE):
    with Recording(rate, seconds_in_memory=1.0) as recording:
        recording.append(samples.astype(np.float32).tobytes())
        return [segment for block in cuts(recording, detector, rule) for segment in block.utterances]


def test_each_voice_is_inside_a_segment_and_the_silence_between_is_not(detector, voices):
    first, second = voices
    gap = np.zeros(4 * RATE, np.float32)

    segments = cut(detector, np.concatenate((gap, first, gap, second, gap)), SegmentRule(longest=30.0, pause=1.0))

    begin = len(gap), 2 * len(gap) + len(first)
    assert len(segments) == 2
    for segment, start, voice in zip(segments, begin, voices, strict=True):
        assert start - 0.5 * RATE <= segment.start < start + 0.5 * RATE
        assert start + len(voice) - 0.7 * RATE < segment.stop <= start + len(voice) + 0.5 * RATE


def test_a_voice_that_goes_on_is_cut_into_pieces_that_leave_nothing_out(detector, voices):
    samples = np.concatenate(voices * 3)

    segments = cut(detector, samples, SegmentRule(longest=3.0, pause=3.0))

    assert len(segments) > 5
    assert all(segment.stop - segment.start <= 3 * RATE for segment in segments)
    assert all(left.stop - left.shared == right.start for left, right in pairwise(segments))
    assert any(segment.shared for segment in segments)


def test_a_recording_at_another_rate_is_cut_at_the_same_times(detector, voices):
    at_half_the_rate = np.concatenate((np.zeros(RATE), voices[0][::2].astype(float), np.zeros(RATE)))

    (segment,) = cut(detector, at_half_the_rate, SegmentRule(longest=30.0, pause=1.0), rate=RATE // 2)

    assert RATE * 0.7 < segment.start < RATE * 1.3
    assert len(at_half_the_rate) - 1.5 * RATE < segment.stop <= len(at_half_the_rate)


@pytest.mark.parametrize("disturbed", [lambda voice: 0.003 * voice, lambda voice: 0.01 * voice + 0.3])
def test_a_quiet_voice_is_found_where_a_loud_one_is_and_a_shifted_one_too(detector, voices, disturbed):
    gap = np.zeros(4 * RATE, np.float32)
    loud = np.concatenate((gap, voices[0], gap, voices[1], gap))
    rule = SegmentRule(longest=30.0, pause=1.0)

    expected, found = cut(detector, loud, rule), cut(detector, disturbed(loud), rule)

    assert len(found) == len(expected) == 2
    for one, other in zip(found, expected, strict=True):
        assert abs(one.start - other.start) <= 0.3 * RATE
        assert abs(one.stop - other.stop) <= 0.3 * RATE


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(70 * RATE)])
def test_without_a_voice_there_is_nothing_to_transcribe(detector, samples):
    assert cut(detector, samples, SegmentRule(longest=30.0)) == []


def test_the_last_segment_ends_with_the_recording(detector, voices):
    samples = voices[0][: 2 * RATE + 100]  # in the middle of a word, and of a frame

    assert cut(detector, samples, SegmentRule(longest=30.0))[-1] == Segment(0, len(samples))
