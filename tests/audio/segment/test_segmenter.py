"""Segments of a recording, from the speech probabilities of its frames."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audio.segment.segmenter import Segment, Segmenter, SegmentRule

FRAME = 0.1
PROBABILITIES = st.sampled_from([0.0, 0.1, 0.36, 0.49, 0.5, 0.7, 1.0])
# Runs, because speech and pauses last; independent frames would hardly ever make a long segment.
RUNS = st.lists(st.tuples(PROBABILITIES, st.integers(1, 30)), max_size=25)
RULES = st.builds(
    SegmentRule,
    longest=st.floats(0.4, 20.0),
    pause=st.floats(0.0, 3.0),
    before=st.floats(0.0, 1.0),
    after=st.floats(0.0, 1.0),
    threshold=st.sampled_from([0.0, 0.3, 0.5, 0.9]),
)


VOICES = st.lists(st.integers(0, 1), min_size=1, max_size=10)  # of the runs, again and again


def by_voices(runs: list[tuple[float, int]], voices: list[int]) -> np.ndarray:
    return bands_of([voices[number % len(voices)] for number, (_, count) in enumerate(runs) for _ in range(count)])


def frames_of(runs: list[tuple[float, int]]) -> list[float]:
    return [probability for probability, count in runs for _ in range(count)]


def bands_of(voices: list[int]) -> np.ndarray:
    """Spectra of frames by voices with these numbers, some nats apart."""
    noise = np.random.default_rng(0).standard_normal((len(voices), 3))
    return (noise + 8 * np.array(voices, int)[:, None] * [1, -1, 1]).astype(np.float32)


def segments_of(probabilities: list[float], rule: SegmentRule, bands: np.ndarray | None = None) -> list[Segment]:
    segmenter = Segmenter(rule, FRAME)
    bands = bands_of([0] * len(probabilities)) if bands is None else bands
    return [*segmenter.push(probabilities, bands), *segmenter.finish()]


def speech(probabilities: list[float], threshold: float) -> list[int]:
    """Frames that are speech: over the threshold, or a little under it right after speech."""
    found, is_speech = [], False
    for frame, probability in enumerate(probabilities):
        is_speech = probability >= (threshold - min(0.15, threshold / 2) if is_speech else threshold)
        if is_speech:
            found.append(frame)
    return found


@settings(max_examples=200, deadline=None)
@given(RUNS, RULES, VOICES)
def test_segments_are_in_order_apart_within_bounds_and_none_is_too_long(runs, rule, voices):
    probabilities = frames_of(runs)

    segments = segments_of(probabilities, rule, by_voices(runs, voices))

    ends = [end for segment in segments for end in (segment.start, segment.stop)]
    assert all(segment.start < segment.stop for segment in segments)
    for before, after in pairwise(segments):
        assert before.start < after.start
        assert before.stop < after.stop
        if before.shared:
            assert after.start == before.stop - before.shared
            assert before.shared <= rule.longest / FRAME / 4
        else:
            assert before.stop <= after.start
    assert not segments or segments[-1].shared == 0
    assert all((segment.stop - segment.start) * FRAME <= rule.longest + 1e-6 for segment in segments)
    assert not ends or (ends[0] >= 0 and ends[-1] <= len(probabilities))


# A cut in a long pause, and behind it another voice.
@example([(0.49, 24), (0.1, 20), (0.5, 65)], SegmentRule(5.64, 3.0, 0.7, 0.7, 0.3), [1, 0, 1])
@settings(max_examples=200, deadline=None)
@given(RUNS, RULES, VOICES)
def test_every_frame_of_speech_is_in_a_segment_and_every_segment_has_speech(runs, rule, voices):
    probabilities = frames_of(runs)

    segments = segments_of(probabilities, rule, by_voices(runs, voices))

    spoken = speech(probabilities, rule.threshold)
    inside = {frame for segment in segments for frame in range(segment.start, segment.stop)}
    assert inside.issuperset(spoken)
    assert all(any(segment.start <= frame < segment.stop for frame in spoken) for segment in segments)


@settings(max_examples=100, deadline=None)
@given(RUNS, RULES, VOICES, st.lists(st.integers(0, 40)))
def test_it_does_not_matter_how_the_frames_are_divided(runs, rule, voices, sizes):
    probabilities, bands = frames_of(runs), by_voices(runs, voices)
    segmenter = Segmenter(rule, FRAME)

    segments, done = [], 0
    for size in [*sizes, len(probabilities)]:
        segments += segmenter.push(probabilities[done : done + size], bands[done : done + size])
        done = min(done + size, len(probabilities))
    segments += segmenter.finish()

    assert segments == segments_of(probabilities, rule, bands)


@settings(max_examples=100, deadline=None)
@given(st.integers(50, 400), st.integers(4, 40))
def test_undecided_audio_is_never_longer_than_a_segment(frames, longest):
    segmenter = Segmenter(SegmentRule(longest=longest * FRAME), FRAME)

    for _ in range(frames):
        list(segmenter.push([1.0], np.ones((1, 1), np.float32)))

        assert len(pickle.dumps(segmenter)) < 1000 + 40 * longest


def test_short_pauses_stay_inside_and_long_ones_end_a_segment():
    rule = SegmentRule(longest=10.0, pause=0.4, before=0.2, after=0.1)

    segments = segments_of(frames_of([(0, 5), (1, 5), (0, 3), (1, 5), (0, 4), (1, 5), (0, 20)]), rule)

    assert segments == [Segment(3, 19), Segment(20, 28)]


def test_a_segment_with_enough_context_ends_with_a_shorter_pause():
    rule = SegmentRule(longest=20.0, pause=1.0, before=0.0, after=0.0)

    segments = segments_of(frames_of([(1, 100), (0, 6), (1, 20), (0, 5), (1, 5), (0, 9)]), rule)

    assert segments == [Segment(0, 126), Segment(131, 136)]


CUT = SegmentRule(longest=5.0, pause=1.0, before=0.0, after=0.0)


def test_speech_that_goes_on_is_cut_in_a_long_pause_and_shares_nothing():
    segments = segments_of(frames_of([(1, 28), (0, 5), (1, 6), (0, 2), (1, 30)]), CUT)

    assert segments == [Segment(0, 31), Segment(31, 71)]


def test_segments_cut_in_a_short_pause_share_the_audio_around_its_middle():
    segments = segments_of(frames_of([(1, 28), (0, 2), (1, 6), (0, 1), (1, 30)]), CUT)

    assert segments == [Segment(0, 35, 12), Segment(23, 67)]


def test_a_pause_in_the_second_half_is_better_than_a_longer_one_that_leaves_a_scrap():
    segments = segments_of(frames_of([(1, 3), (0, 6), (1, 26), (0, 5), (1, 31)]), CUT)

    assert segments == [Segment(0, 38), Segment(38, 71)]


def test_a_pause_that_is_longer_than_a_segment_may_be_is_cut_within_the_segment():
    segments = segments_of(frames_of([(1, 45), (0, 8), (1, 20)]), CUT)

    assert segments == [Segment(0, 48), Segment(48, 73)]


def test_speech_without_a_pause_is_cut_in_its_quietest_frame():
    bands = np.ones((80, 2), np.float32)
    bands[10] = 0.0  # in the first half
    bands[41] = 0.2

    segments = segments_of([1.0] * 80, CUT, bands)

    assert segments == [Segment(0, 47, 12), Segment(35, 80)]


def test_a_segment_ends_in_each_pause_in_which_the_voice_changes():
    rule = SegmentRule(longest=20.0, pause=3.0, before=0.3, after=0.3)
    runs = [(1.0, 40), (0.0, 2), (1.0, 40), (0.0, 10), (1.0, 40), (0.0, 2), (1.0, 40), (0.0, 40)]
    voices = [0, 0, 0, 0, 1, 0, 0, 0]

    segments = segments_of(frames_of(runs), rule, by_voices(runs, voices))

    assert segments == [Segment(0, 85), Segment(89, 133), Segment(133, 177)]


def test_speech_that_goes_on_is_cut_where_the_voice_changes_rather_than_in_a_longer_pause():
    rule = SegmentRule(longest=10.0, pause=2.0, before=0.0, after=0.0)
    runs = [(1.0, 40), (0.0, 1), (1.0, 40), (0.0, 9), (1.0, 30)]

    segments = segments_of(frames_of(runs), rule, by_voices(runs, [0, 0, 1, 1, 1]))

    assert segments == [Segment(0, 40), Segment(41, 120)]


@pytest.mark.parametrize("probabilities", [[], [0.0] * 1000])
def test_without_speech_there_are_no_segments(probabilities):
    assert segments_of(probabilities, SegmentRule(longest=5.0)) == []
