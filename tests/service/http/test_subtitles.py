import itertools
import re

import pytest
import srt as srt_files
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.protocol import Word
from service.http.subtitles import LEAST_SECONDS, LINE_CHARACTERS, MOST_SECONDS, cues, srt, vtt

SPOKEN = st.lists(
    st.tuples(
        st.text("abcdefgh.,?", min_size=1, max_size=14),
        st.floats(0, 2),  # pause before the word
        st.floats(0, 1.5),  # its length
    ),
    max_size=60,
)


def spoken(*timed: tuple[str, float, float]) -> list[Word]:
    """Words from (text, pause before, length)."""
    words, now = [], 0.0
    for index, (text, pause, length) in enumerate(timed):
        words.append(Word(text, now + pause, now + pause + length, None, (index, index + 1)))
        now += pause + length
    return words


def said(text: str, each: float = 0.3) -> list[Word]:
    return spoken(*((word, 0.0, each) for word in text.split()))


@settings(max_examples=200, deadline=None)
@given(SPOKEN)
def test_every_word_is_shown_once_in_order(timed):
    words = spoken(*timed)

    shown = " ".join(line for cue in cues(words) for line in cue.lines)

    assert shown == " ".join(word.text for word in words)


@settings(max_examples=200, deadline=None)
@given(SPOKEN)
def test_cues_fit_the_screen_and_the_eye(timed):
    for cue in cues(spoken(*timed)):
        assert 1 <= len(cue.lines) <= 2
        assert all(len(line) <= LINE_CHARACTERS for line in cue.lines)
        assert cue.end - cue.start <= MOST_SECONDS + 1e-9


@settings(max_examples=200, deadline=None)
@given(SPOKEN)
def test_cues_follow_each_other_and_stay_long_enough_where_there_is_room(timed):
    shown = cues(spoken(*timed))

    for cue, after in itertools.pairwise(shown):
        assert cue.start <= cue.end <= after.start
        assert cue.end - cue.start >= min(LEAST_SECONDS, after.start - cue.start) - 1e-9


def test_cuts_fall_after_sentences_and_at_pauses_rather_than_within_phrases():
    words = said("here is a first sentence that fills more than one line. and here is the second one of the two,")
    words += [
        Word("after", 10.0, 10.4, None, (0, 1)),
        Word("a", 10.4, 10.5, None, (0, 1)),
        Word("pause", 10.5, 11.0, None, (0, 1)),
    ]

    shown = [" ".join(cue.lines) for cue in cues(words)]

    assert shown == [
        "here is a first sentence that fills more than one line.",
        "and here is the second one of the two,",
        "after a pause",
    ]


def test_two_lines_are_even():
    (cue,) = cues(said("one two three four five six seven eight nine ten eleven", each=0.2))

    assert cue.lines == ("one two three four five six", "seven eight nine ten eleven")


def test_a_word_longer_than_a_line_has_a_cue_to_itself():
    shown = cues(said(f"a {'x' * 60} b"))

    assert ("x" * 60,) in [cue.lines for cue in shown]


def test_srt_is_numbered_and_timed():
    words = spoken(("hello", 0.5, 0.5), ("world.", 0.0, 1.0), ("again", 3661.0, 1.0))

    assert srt(cues(words)) == (
        "1\n00:00:00,500 --> 00:00:02,000\nhello world.\n\n2\n01:01:03,000 --> 01:01:04,000\nagain\n"
    )


def test_vtt_escapes_its_markup():
    text = vtt(cues(said("a<b & c-->d")))

    assert text.startswith("WEBVTT\n\n00:00:00.000 --> ")
    assert "a&lt;b &amp; c--&gt;d" in text
    assert len(re.findall("-->", text)) == 1


@settings(max_examples=100, deadline=None)
@given(SPOKEN)
def test_public_parsers_read_the_cues_back(timed):
    shown = cues(spoken(*timed))

    subtitles = list(srt_files.parse(srt(shown)))
    captions = webvtt.from_string(vtt(shown)).captions

    assert [subtitle.content for subtitle in subtitles] == ["\n".join(cue.lines) for cue in shown]
    assert [subtitle.index for subtitle in subtitles] == [*range(1, len(shown) + 1)]
    assert [caption.lines for caption in captions] == [list(cue.lines) for cue in shown]
    for cue, subtitle, caption in zip(shown, subtitles, captions, strict=True):
        assert subtitle.start.total_seconds() == pytest.approx(cue.start, abs=0.001)
        assert subtitle.end.total_seconds() == pytest.approx(cue.end, abs=0.001)
        assert caption.start_in_seconds == pytest.approx(cue.start, abs=1)
        assert caption.end_in_seconds == pytest.approx(cue.end, abs=1)


def test_silence_has_no_cues():
    assert cues([]) == []
    assert srt([]) == ""
    assert vtt([]) == "WEBVTT\n"
