"""A transcript as text, JSON, subtitles or a table."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any, Literal, get_args

from cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bulk.file_transcripts import Transcribed
    from models import Word

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


def check_installed(wanted: list[Format], *, by_channel: bool) -> None:
    """Refuse formats for which packages are missing.

    Raises:
        CommandError: if so.
    """
    if by_channel or set(wanted) & set(TIMED):
        try:
            import transcripts.subtitles
            import transcripts.timed_words  # noqa: F401
        except ModuleNotFoundError as error:
            needing = "--multichannel needs" if by_channel else f"{', '.join(TIMED)} need"
            raise CommandError(f"{needing} the extra 'serve' ({error.name} is missing)") from None


@dataclasses.dataclass(frozen=True, slots=True)
class SubtitleSize:
    """Size of a cue of srt and vtt; None is the service's default.

    Attributes:
        characters: columns of a line.
        lines: most lines.
        seconds: longest time that it is shown.
    """

    characters: int | None = None
    lines: int | None = None
    seconds: float | None = None


def render(name: str, outcome: Transcribed, wanted: Format, size: SubtitleSize) -> str:
    """Return the transcript of a recording in a format, without a newline at its end.

    ``json`` is one line, with the fields of ``Transcript``, and the language if that was identified. ``tsv`` has a line
    for each segment: start and end in milliseconds, and the text. Segments and subtitles are those of the service.
    """
    if wanted == "txt":
        return outcome.transcript.text
    if wanted == "json":
        fields = {"audio": name, "duration": outcome.seconds, **_spoken(outcome), **outcome.transcript.as_dict()}
        return json.dumps(fields, ensure_ascii=False)
    if wanted == "tsv":
        return "\n".join(["start\tend\ttext", *("\t".join(turn.cells) for turn in _turns([outcome]))])
    return _subtitles([_timed(outcome)], [None], wanted, size)


def render_channels(name: str, outcome: Sequence[Transcribed], wanted: Format, size: SubtitleSize) -> str:
    """Return the transcripts of a recording's channels in a format, as ``render`` does, in the order of time.

    ``txt`` has a line for each stretch in which one channel speaks. ``json`` has the fields of ``Transcript`` for each
    channel, under ``channels``. ``tsv`` has a column ``channel``. Channels are counted from 1.
    """
    if wanted == "json":
        channels = [
            {"channel": number, **_spoken(channel), **channel.transcript.as_dict()}
            for number, channel in enumerate(outcome, 1)
        ]
        fields = {"audio": name, "duration": outcome[0].seconds, "channels": channels}
        return json.dumps(fields, ensure_ascii=False)
    if wanted in ("srt", "vtt"):
        names = [f"Channel {number}" for number in range(1, len(outcome) + 1)]
        return _subtitles([_timed(channel) for channel in outcome], names, wanted, size)
    turns = _turns(outcome)
    if wanted == "tsv":
        return "\n".join(
            [
                "start\tend\tchannel\ttext",
                *("\t".join([*turn.cells[:2], str(turn.channel), turn.text]) for turn in turns),
            ]
        )
    from transcripts.scripts import run_together

    stretches = itertools.groupby(turns, key=lambda turn: turn.channel)
    return "\n".join(f"Channel {number}: {run_together(turn.text for turn in own)}" for number, own in stretches)


def _spoken(outcome: Transcribed) -> dict[str, Any]:
    """Return the fields of an identified language."""
    spoken = outcome.spoken
    return {"language": spoken.language, "language_probability": spoken.probability} if spoken else {}


@dataclasses.dataclass(frozen=True, slots=True)
class _Turn:
    """A segment of a channel, with its times in seconds."""

    channel: int
    start: float
    end: float
    text: str

    @property
    def cells(self) -> list[str]:
        """Start and end in milliseconds, and the text."""
        return [str(round(1000 * self.start)), str(round(1000 * self.end)), self.text]


def _turns(channels: Sequence[Transcribed]) -> list[_Turn]:
    """Return the segments of all channels in the order of time."""
    from transcripts.segments import split_segments
    from transcripts.timed_words import text_of

    turns = [
        _Turn(number, part[0].start or 0.0, part[-1].end or 0.0, " ".join(text_of(part).split()))
        for number, channel in enumerate(channels, 1)
        for part in split_segments(_timed(channel))
    ]
    return sorted(turns, key=lambda turn: turn.start)


def _timed(outcome: Transcribed) -> list[Word]:
    """Return the words, each with times."""
    from transcripts.timed_words import timed_words

    return timed_words(outcome.transcript, outcome.seconds)


def _subtitles(
    channels: Sequence[Sequence[Word]], speakers: Sequence[str | None], wanted: Format, size: SubtitleSize
) -> str:
    from transcripts.subtitles import CueSize, cues, srt, vtt

    cue_size = CueSize(**{key: value for key, value in dataclasses.asdict(size).items() if value is not None})
    shown = [cue for words, speaker in zip(channels, speakers, strict=True) for cue in cues(words, cue_size, speaker)]
    return (srt if wanted == "srt" else vtt)(sorted(shown, key=lambda cue: cue.start)).rstrip("\n")
