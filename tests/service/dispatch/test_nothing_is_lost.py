"""However a recording is cut, a model that finds every word of a piece finds every word of the recording, once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.segment.segmenter import Segmenter, SegmentRule
from audio.segment.voice_activity import FRAME_SECONDS
from service.http.transcription.chunking import ServerVad
from transcripts.joining import Joiner, joined
from transcripts.transcript import Transcript, Word

# Three words, so that the same ones follow each other often. Runs of them have no pause that a frame would show.
WORDS = st.lists(st.tuples(st.sampled_from(["no", "yes", "well"]), st.floats(0.15, 0.9)), min_size=1, max_size=40)
SPOKEN = st.lists(st.tuples(WORDS, st.floats(0.1, 5.0)), min_size=1, max_size=6)
RULES = {
    "auto": SegmentRule,
    "server_vad": ServerVad(type="server_vad").rule,
    "none": ServerVad(type="server_vad", threshold=0).rule,
}

VOICE = np.random.default_rng(1).standard_normal(20)


def said(spoken):
    """Words and when each begins and ends."""
    words, time = [], 0.5
    for run, pause in spoken:
        for text, seconds in run:
            words.append((text, time, time + seconds))
            time += seconds + 0.01
        time += pause
    return words


def judged(words):
    """The speech probability of each frame, by a detector that is never wrong, and its bands: of two voices in turn."""
    probabilities = [0.0] * (math.ceil(words[-1][2] / FRAME_SECONDS) + 20)
    for _, start, stop in words:
        for frame in range(math.floor(start / FRAME_SECONDS), math.ceil(stop / FRAME_SECONDS)):
            probabilities[frame] = 1.0
    voices = np.arange(len(probabilities)) // 100 % 2
    bands = np.random.default_rng(0).standard_normal((len(probabilities), 20)) + 6 * voices[:, None] * VOICE
    return probabilities, bands.astype(np.float32)


def heard(words, begin, end):
    """A model's words of a piece: every word, and a fragment where one is cut off."""
    found = []
    for text, start, stop in words:
        first, last = max(start, begin), min(stop, end)
        if last - first > 0.04:
            is_whole = (first, last) == (start, stop)
            found.append(Word(text if is_whole else "?", first, last, 0.9, (len(found), len(found) + 1)))
    texts = [word.text for word in found]
    return Transcript(" ".join(texts), [ord(text[0]) for text in texts], [0.9] * len(texts), found)


@pytest.mark.parametrize("strategy", RULES)
@settings(max_examples=60, deadline=None)
@given(SPOKEN, st.floats(5.0, 20.0))
def test_no_word_is_lost_or_doubled_by_any_strategy(strategy, spoken, longest):
    words = said(spoken)
    segmenter = Segmenter(RULES[strategy](longest), FRAME_SECONDS)
    segments = [*segmenter.push(*judged(words)), *segmenter.finish()]

    joiner, certain = Joiner(), []
    for start, stop, shared in segments:
        part = heard(words, start * FRAME_SECONDS, stop * FRAME_SECONDS)
        certain.append(joiner.push(part, stop * FRAME_SECONDS, shared * FRAME_SECONDS))

    assert joined(certain).text.split() == [text for text, _, _ in words]


@pytest.mark.parametrize("strategy", RULES)
def test_speech_without_a_pause_is_cut_into_pieces_that_share_audio(strategy):
    segmenter = Segmenter(RULES[strategy](16.0), FRAME_SECONDS)
    segments = [*segmenter.push([1.0] * 2000, np.ones((2000, 1), np.float32)), *segmenter.finish()]

    assert len(segments) >= 4
    assert [round(segment.shared * FRAME_SECONDS, 1) for segment in segments] == [2.0] * (len(segments) - 1) + [0.0]
