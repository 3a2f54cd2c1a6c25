import itertools
import math
import re
import textwrap

import pytest
import srt as srt_files
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from transcripts.json_formats import as_verbose_json
from transcripts.line_breaks import pieces, width
from transcripts.scripts import run_together, separator
from transcripts.subtitles import LEAST_SECONDS, CueSize, cues, srt, vtt
from transcripts.transcript import Transcript, Word
from transcripts.transcription import Channel, Transcription

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
        words.append(Word(f" {text}", now + pause, now + pause + length, None, (index, index + 1)))
        now += pause + length
    return words


def said(text: str, each: float = 0.3) -> list[Word]:
    return spoken(*((word, 0.0, each) for word in text.split()))


@pytest.mark.parametrize("unseen", ["", " ", "\u200b", "\ufeff", "\u200e", "\u2581", "\u200b\u200e"])
def test_what_is_not_seen_is_no_cue_and_no_word_however_long_it_lasts(unseen):
    words = spoken(("one", 0, 0.5), (unseen, 0, 29), ("two", 9, 0.5))
    channel = Channel(None, 40.0, Transcript(f"one {unseen} two", [1, 2, 3], [0.9] * 3, words))

    assert cues(words[1:2]) == []
    assert [(cue.lines, cue.end) for cue in cues(words)] == [(("one",), 0.8), (("two",), 39.3)]
    listed = as_verbose_json(Transcription(40.0, [channel]), words=True, segments=False)["words"]
    assert [word["word"] for word in listed] == ["one", "two"]


@settings(max_examples=200, deadline=None)
@given(SPOKEN)
def test_cues_follow_each_other_and_stay_long_enough_where_there_is_room(timed):
    shown = cues(spoken(*timed))

    for cue, after in itertools.pairwise(shown):
        assert cue.start <= cue.end <= after.start
        assert cue.end - cue.start >= min(LEAST_SECONDS, after.start - cue.start) - 1e-9


def test_cuts_fall_after_sentences_and_at_pauses_rather_than_within_phrases():
    words = said("here is a first sentence that fills more than one line. and here is the second one of the two,")
    words += [Word(text, start, start + 0.4, None, (0, 1)) for text, start in ((" after", 10.0), (" a pause", 10.4))]

    shown = [" ".join(cue.lines) for cue in cues(words)]

    assert shown == [
        "here is a first sentence that fills more than one line.",
        "and here is the second one of the two,",
        "after a pause",
    ]


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


# Scripts without spaces

CHINESE = "今天我们来谈谈城市交通的变化,过去十年里,越来越多的人选择骑自行车上班。"


def run(text: str, each: float = 0.25) -> list[Word]:
    """A word for each character, as models write Chinese."""
    return [Word(one, n * each, (n + 1) * each, None, (n, n + 1)) for n, one in enumerate(text)]


def test_wide_characters_take_two_columns_and_no_spaces_come_between():
    shown = cues(run(4 * CHINESE))

    assert "".join(line for cue in shown for line in cue.lines) == 4 * CHINESE
    assert len(shown) > 4
    for cue in shown:
        assert all(width(line) <= 42 for line in cue.lines)
        assert cue.end - cue.start <= 7


def test_a_sentence_that_is_one_word_is_divided_between_characters_and_shares_its_time():
    (word,) = spoken((CHINESE, 0.0, 12.0))

    shown = cues([word])

    assert "".join(line for cue in shown for line in cue.lines) == CHINESE
    assert len(shown) > 1
    assert all(width(line) <= 42 for cue in shown for line in cue.lines)
    assert (shown[0].start, shown[-1].end) == (0.0, pytest.approx(12.0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好,世界", ["你", "好,", "世", "界"]),
        ("スーパー", ["スー", "パー"]),
        ("用GPU的", ["用", "GPU", "的"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("スゞﾊｯ", ["スゞ", "ﾊｯ"]),
        ("hello", ["hello"]),
        ("说「好」", ["说", "「好」"]),
        ("ｱ｢ｲ｣｡", ["ｱ", "｢ｲ｣｡"]),
        (" 你好", [" 你", "好"]),
    ],
)
def test_a_line_ends_between_characters_but_begins_with_no_mark_and_ends_with_no_opening_bracket(text, expected):
    assert pieces(text) == expected


@given(st.text("你好,。スーパー用GPU ที่นี่a", max_size=20))
def test_no_character_is_lost(text):
    assert "".join(pieces(text)) == text


def test_texts_run_together_as_they_are_written():
    assert run_together(["你好。", "世界。", "and", "", "more"]) == "你好。世界。 and more"
    assert separator("", "a") == separator("a", "") == ""


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("你好", 4), ("ｱ", 1), ("ที่", 1), ("e\u0301", 1)])
def test_the_width_of_a_text_is_that_on_a_screen(text, columns):
    assert width(text) == columns


# Sizes


@settings(max_examples=100, deadline=None)
@given(SPOKEN, st.integers(16, 60), st.integers(1, 4), st.floats(1, 10))
def test_cues_have_the_size_that_is_asked_for(timed, characters, lines, seconds):
    words = spoken(*timed)

    shown = cues(words, CueSize(characters, lines, seconds))

    assert " ".join(line for cue in shown for line in cue.lines) == "".join(word.text for word in words).strip()
    for cue in shown:
        assert 1 <= len(cue.lines) <= lines
        assert all(len(line) <= characters for line in cue.lines)
        assert cue.end - cue.start <= seconds + 1e-9 or len(cue.lines[0].split()) == 1


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=12), st.integers(2, 4))
def test_lines_are_as_few_and_as_even_as_can_be(texts, lines):
    words = spoken(*((text, 0.0, 0.1) for text in texts))
    shown = cues(words, CueSize(16, lines, 60.0))

    for cue in shown:
        said = " ".join(cue.lines).split()
        least = min(
            (len(division), max(map(len, division)))
            for cuts in range(len(cue.lines))
            for places in itertools.combinations(range(1, len(said)), cuts)
            for division in [[" ".join(said[a:b]) for a, b in itertools.pairwise([0, *places, len(said)])]]
            if max(map(len, division)) <= 16
        )
        assert (len(cue.lines), max(map(len, cue.lines))) == least


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=30), st.integers(1, 4))
def test_where_no_cut_is_better_than_another_there_are_as_few_cues_as_fit_the_words(texts, lines):
    shown = cues(spoken(*((text, 0.0, 1.0) for text in texts)), CueSize(16, lines, 1000.0))

    filled = textwrap.wrap(" ".join(texts), 16)
    assert len(shown) == math.ceil(len(filled) / lines)


def test_a_name_of_a_speaker_takes_room_on_the_first_line():
    for cue in cues(
        said("one two three four five six seven eight nine ten eleven twelve"), CueSize(24, 2), "Channel 1"
    ):
        assert len(f"Channel 1: {cue.lines[0]}") <= 24
