"""Transcripts for people: text, subtitles and tables."""

import itertools
from typing import Literal

from transcripts.scripts import run_together
from transcripts.subtitles import USUAL, CueSize, cues, srt, vtt
from transcripts.timed_words import text_of
from transcripts.transcription import Transcription, name_of


def as_text(result: Transcription) -> str:
    """Return the text, a line; of numbered channels, a line for each stretch in which one of them speaks."""
    if not result.has_numbers:
        return result.text + "\n"
    stretches = itertools.groupby(result.turns, key=lambda turn: turn.channel)
    return "".join(f"{name_of(number)}: {run_together(turn.text for turn in own)}\n" for number, own in stretches)


def as_subtitles(result: Transcription, kind: Literal["srt", "vtt"], size: CueSize = USUAL) -> str:
    """Return a file of subtitles; people who speak at the same time have cues at the same time."""
    shown = [cue for channel in result.channels for cue in cues(result.timed_words(channel), size, channel.name)]
    return (srt if kind == "srt" else vtt)(sorted(shown, key=lambda cue: cue.start))


def as_table(result: Transcription) -> str:
    """Return a line for each segment in the order of time: its start and end in milliseconds, channel and text.

    The first line names the columns, which are separated by tabs. The channel is there only if channels are numbered.
    """
    rows = [
        (words[0].start or 0.0, words[-1].end or 0.0, channel.number, " ".join(text_of(words).split()))
        for channel in result.channels
        for words in result.segments(channel)
    ]
    rows.sort(key=lambda row: row[0])
    lines = [["start", "end", *(["channel"] if result.has_numbers else []), "text"]]
    lines += [
        [str(round(1000 * start)), str(round(1000 * end)), *([] if number is None else [str(number)]), text]
        for start, end, number, text in rows
    ]
    return "".join("\t".join(line) + "\n" for line in lines)
