"""Streamed subtitles are a file like any other, whatever the parts."""

import io
from collections import defaultdict

import srt
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transcripts.test_subtitles import spoken
from transcripts.subtitle_stream import SubtitleStream
from transcripts.subtitles import LEAST_SECONDS, CueSize, cues
from transcripts.subtitles import srt as srt_of

WORD = st.tuples(st.text("abcdefgh.,?", min_size=1, max_size=14), st.floats(0, 2), st.floats(0, 1.5))
PARTS = st.lists(st.tuples(st.lists(WORD, max_size=12), st.sampled_from(["Channel 1", "Channel 2"])), max_size=8)
SIZE = CueSize()


def streamed(parts, *, is_vtt: bool, with_speakers: bool) -> str:
    """Stream parts that follow each other, and return the file; the events joined are it."""
    stream = SubtitleStream(is_vtt=is_vtt, size=SIZE)
    every = spoken(*(word for words, _ in parts for word in words))
    deltas, begin = [], 0
    for words, speaker in parts:
        part = every[begin : begin + len(words)]
        begin += len(words)
        deltas.append(stream.add(part, speaker if with_speakers else None))
    deltas.append(stream.end())
    assert "".join(deltas) == stream.text
    return stream.text


@settings(max_examples=200, deadline=None)
@given(PARTS)
def test_cues_are_numbered_in_order_without_overlap_and_have_every_word(parts):
    shown = list(srt.parse(streamed(parts, is_vtt=False, with_speakers=False)))

    assert [cue.index for cue in shown] == list(range(1, len(shown) + 1))
    ends = [cue.end for cue in shown]
    assert all(end <= cue.start for end, cue in zip(ends, shown[1:], strict=False))
    said = "".join(text for words, _ in parts for text, _, _ in words)
    assert "".join("".join(cue.content.split()) for cue in shown) == said


@settings(max_examples=200, deadline=None)
@given(PARTS)
def test_cues_of_speakers_are_in_the_order_of_time(parts):
    text = streamed(parts, is_vtt=True, with_speakers=True)
    shown = list(webvtt.from_buffer(io.StringIO(text)))

    starts = [cue.start_in_seconds for cue in shown]
    assert starts == sorted(starts)
    said, heard = defaultdict(str), defaultdict(str)
    for words, speaker in parts:
        said[speaker] += "".join(text for text, _, _ in words)
    for cue in shown:
        heard[cue.voice] += "".join(cue.text.split())
    assert heard == {speaker: text for speaker, text in said.items() if text}


@given(st.lists(WORD, min_size=1, max_size=20))
def test_a_single_part_is_the_file_that_is_answered_at_once(words):
    assert streamed([(words, "")], is_vtt=False, with_speakers=False) == srt_of(cues(spoken(*words), SIZE))


def test_a_brief_cue_waits_for_what_may_cut_it_short():
    stream = SubtitleStream(is_vtt=False, size=SIZE)
    yes, then = spoken(("Yes.", 0.0, 0.2)), spoken(("Well.", 0.5, 2.0))

    assert (stream.add(yes), stream.add(then), stream.end()) == ("", stream.text, "")
    assert stream.text.startswith("1\n00:00:00,000 --> 00:00:00,500\nYes.\n\n2\n")


def test_a_brief_cue_at_the_end_stays_as_long_as_any():
    stream = SubtitleStream(is_vtt=False, size=SIZE)

    assert stream.add(spoken(("Yes.", 0.0, 0.2))) + stream.end() == stream.text
    (shown,) = srt.parse(stream.text)
    assert shown.end.total_seconds() == LEAST_SECONDS


def test_nothing_said_is_an_empty_file():
    assert streamed([], is_vtt=False, with_speakers=False) == ""
    assert streamed([], is_vtt=True, with_speakers=False) == "WEBVTT\n"
