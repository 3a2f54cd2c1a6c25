"""A transcript as text, JSON, subtitles or a table."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bulk.file_transcripts import Transcribed
    from transcripts.subtitles import CueSize
    from transcripts.transcription import Transcription

Format = Literal["txt", "json", "srt", "vtt", "tsv"]
FORMATS: tuple[Format, ...] = get_args(Format)
TIMED: tuple[Format, ...] = ("srt", "vtt", "tsv")


def formats(text: str) -> list[Format]:
    """Read formats separated by commas, each once.

    Raises:
        ArgumentTypeError: if one is unknown.
    """
    wanted = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if unknown := [one for one in wanted if one not in FORMATS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(FORMATS)}")
    return [FORMATS[FORMATS.index(one)] for one in wanted]


def _result(outcome: Sequence[Transcribed], *, has_numbers: bool) -> Transcription:
    from transcripts.transcription import Channel, Language, Part, Transcription

    channels = [
        Channel(
            number if has_numbers else None,
            one.seconds,
            one.transcript,
            [Part(one.transcript, 0.0, one.seconds)] if one.transcript.text else [],
            Language(code=one.spoken.language, probability=one.spoken.probability) if one.spoken else Language(),
        )
        for number, one in enumerate(outcome, 1)
    ]
    return Transcription(channels[0].seconds, channels)


def render(name: str, outcome: Sequence[Transcribed], wanted: Format, size: CueSize, *, has_numbers: bool) -> str:
    """Return the transcript of a recording in a format, without a newline at its end.

    ``json`` is one line. Segments and subtitles are those of the service. Channels may have numbers, from 1.
    """
    from transcripts.json_formats import as_line
    from transcripts.text_formats import as_subtitles, as_table, as_text

    found = _result(outcome, has_numbers=has_numbers)
    if wanted == "json":
        return json.dumps(as_line(name, found), ensure_ascii=False)
    if wanted == "txt":
        return as_text(found).removesuffix("\n")
    return (as_table(found) if wanted == "tsv" else as_subtitles(found, wanted, size)).rstrip("\n")
