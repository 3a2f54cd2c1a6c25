"""A transcript as text, JSON, subtitles or a table."""

import dataclasses
import json
from typing import Literal, get_args

from bulk.file_transcripts import Transcribed
from cli.errors import CommandError

Format = Literal["txt", "json", "srt", "vtt", "tsv"]
FORMATS: tuple[Format, ...] = get_args(Format)
TIMED: tuple[Format, ...] = ("srt", "vtt", "tsv")


def formats(text: str) -> list[Format]:
    """Read formats separated by commas, each once.

    Raises:
        ValueError: if one is unknown.
    """
    wanted = list(dict.fromkeys(part.strip() for part in text.split(",")))
    return [FORMATS[FORMATS.index(one)] for one in wanted]  # index() raises for an unknown one


def check_installed(wanted: list[Format]) -> None:
    """Refuse formats for which packages are missing.

    Raises:
        CommandError: if so.
    """
    if set(wanted) & set(TIMED):
        try:
            import service.http.subtitles
            import service.http.timed_words  # noqa: F401
        except ModuleNotFoundError as error:
            raise CommandError(f"{', '.join(TIMED)} need the extra 'serve' ({error.name} is missing)") from None


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

    ``json`` is one line, with the fields of ``Hypothesis``. ``tsv`` has a line for each segment: start and end in
    milliseconds, and the text. Segments and subtitles are those of the service.
    """
    if wanted == "txt":
        return outcome.hypothesis.text
    if wanted == "json":
        fields = {"audio": name, "duration": outcome.seconds, **dataclasses.asdict(outcome.hypothesis)}
        return json.dumps(fields, ensure_ascii=False)
    from service.engine.protocol import Transcript, Word
    from service.http.segments import split_segments
    from service.http.subtitles import CueSize, cues, srt, vtt
    from service.http.timed_words import text_of, timed_words

    heard = outcome.hypothesis
    words = [Word(one.text, one.start, one.end, one.confidence, one.token_span) for one in heard.words]
    timed = timed_words(Transcript(heard.text, heard.tokens, heard.token_confidence, words), outcome.seconds)
    if wanted == "tsv":
        rows = ((part[0].start, part[-1].end, text_of(part)) for part in split_segments(timed))
        lines = (f"{_milliseconds(start)}\t{_milliseconds(end)}\t{' '.join(text.split())}" for start, end, text in rows)
        return "\n".join(["start\tend\ttext", *lines])
    asked = {key: value for key, value in dataclasses.asdict(size).items() if value is not None}
    return (srt if wanted == "srt" else vtt)(cues(timed, CueSize(**asked))).rstrip("\n")


def _milliseconds(seconds: float | None) -> int:
    return round(1000 * (seconds or 0.0))
