"""What was transcribed of a recording: its channels, their transcripts, times and languages, and how much it was.

A recording whose channels were mixed is the case of one channel without a number.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import add
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from transcripts.languages import NAMES
from transcripts.scripts import run_together
from transcripts.segments import split_segments
from transcripts.spoken_language import Spoken
from transcripts.timed_words import text_of, timed_words
from transcripts.transcript import Transcript, Word

UNKNOWN_LANGUAGE = "unknown"

Task = Literal["transcribe", "translate"]
LanguageSource = Literal["request", "model", "text", "audio", "assumed"]


class Part(NamedTuple):
    """A part of a channel that was transcribed as one utterance."""

    transcript: Transcript  # its transcript, with times of the recording
    start: float  # when it begins, in seconds of the recording
    end: float  # when it ends
    spoken: Spoken | None = None  # its language, if that was identified


@dataclass(frozen=True, slots=True)
class Language:
    """Language and task of a text."""

    task: Task = "transcribe"  # transcribe, or translate if the text is not in the spoken language
    code: str | None = None  # ISO 639-1 code of the text's language; None if it is not known, or not detected yet
    source: LanguageSource = "request"  # how the language is known
    probability: float | None = None  # probability of a detected language
    segments: Sequence[Spoken | None] = ()  # detected language of each segment; empty if none was detected

    @property
    def part_fields(self) -> dict[str, Any]:
        """Fields of the language for a part of the text."""
        return _language_fields(self.code, self.probability)

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the language for the answer."""
        source = {"language_source": self.source} if self.code else {}
        languages = [{"code": self.code}] if self.code and self.source != "assumed" else []
        return self.part_fields | source | {"languages": languages}


def spoken_fields(spoken: Spoken | None) -> dict[str, Any]:
    """Return the fields of a detected language."""
    return _language_fields(*(spoken or (None, None)))


def _language_fields(code: str | None, probability: float | None) -> dict[str, Any]:
    """Return the fields of a language, by OpenAI's name; no field is null, because clients fail on it."""
    language = {"language": NAMES[code] if code else UNKNOWN_LANGUAGE}
    return language if probability is None else language | {"language_probability": probability}


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a recording was transcribed, in seconds."""

    transcribed: float = 0.0  # audio that the model got
    skipped: float = 0.0  # audio that was left out, because the detector found no speech
    speech_without_text: float = 0.0  # speech by the detector, in parts for which the model wrote nothing
    rescued: float = 0.0  # stretches of speech that had no words until they were transcribed again

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Speech:
    """The probability of speech, 0 to 1, in each frame of a recording, float32 [frames], and a frame's seconds."""

    probabilities: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    frame_seconds: float = 1.0


class Stretch(NamedTuple):
    """A stretch of a transcript: its text, its slice of the tokens, and its words."""

    text: str
    token_span: tuple[int, int]
    words: list[Word]


def stretches(transcript: Transcript) -> Iterator[Stretch]:
    """Yield the text segment by segment; joined, they are exactly the text."""
    begin = end = token = 0
    for words in split_segments(transcript.words):
        for word in words:
            found = transcript.text.find(word.text, end)
            end = end if found < 0 else found + len(word.text)
        if end > begin:
            after = words[-1].token_span[1]
            yield Stretch(transcript.text[begin:end], (token, after), words)
            begin, token = end, after
    if begin < len(transcript.text):
        yield Stretch(transcript.text[begin:], (token, len(transcript.tokens)), [])


class Turn(NamedTuple):
    """A segment of a numbered channel."""

    channel: int
    start: float  # when it begins, in seconds of the recording
    part: Part  # the part that it belongs to
    stretch: Stretch  # its stretch of that transcript
    is_first: bool  # whether it is the channel's first

    @property
    def text(self) -> str:
        """Its text."""
        return self.stretch.text.strip()

    @property
    def words(self) -> list[Word]:
        """Its words, each with times and the space before it, at least one."""
        stretch = self.part.transcript._replace(text=self.stretch.text, words=self.stretch.words)
        return timed_words(stretch, self.part.end, self.start) or [
            Word(self.text, self.start, self.start, None, (0, 0))
        ]


def turns_of(channel: int, part: Part, *, is_first: bool) -> Iterator[Turn]:
    """Yield the segments of a part in order; `is_first` tells whether it is the first of its channel with text."""
    start = part.start
    for stretch in stretches(part.transcript):
        known = [word.start for word in stretch.words if word.start is not None]
        start = max(start, min(known, default=start))  # in order, even if a model's times are not
        yield Turn(channel, start, part, stretch, is_first)
        is_first = False


@dataclass(frozen=True, slots=True)
class Channel:
    """What was transcribed in a channel."""

    number: int | None  # its number, from 1; None: the one channel of a recording without numbered channels
    seconds: float  # length of its audio; 0 if it is silent, and so not transcribed
    transcript: Transcript
    parts: Sequence[Part] = ()  # the parts with text that the transcript was joined from, in order
    language: Language = Language()  # it is frozen
    speech: Speech = field(default_factory=Speech)  # where speech is; empty if no format asks for it

    @property
    def name(self) -> str | None:
        """Its name for people; None without a number."""
        return None if self.number is None else name_of(self.number)


def name_of(channel: int) -> str:
    """Return the name of a channel for people."""
    return f"Channel {channel}"


def speaker_of(channel: int) -> str:
    """Return the label of a channel's speaker, as OpenAI's API labels speakers: A, B, ..."""
    return chr(ord("A") + channel - 1)


@dataclass(frozen=True)
class Transcription:
    """What was transcribed in a recording."""

    seconds: float  # length of the file
    channels: Sequence[Channel]  # at least one
    language: Language = Language()  # it is frozen
    coverage: Coverage = Coverage()  # how much of it was transcribed
    track: int = 1  # the audio track that was transcribed, from 1; 0: all, as channels
    tracks: int = 1  # audio tracks of the file
    is_truncated: bool = False  # whether the file is known to hold, or to have held, more than was decoded

    @property
    def has_numbers(self) -> bool:
        """Whether its channels are numbered."""
        return self.channels[0].number is not None

    @cached_property
    def turns(self) -> list[Turn]:
        """The segments of numbered channels in the order of time; of equal starts, the lower channel is first."""
        return list(heapq.merge(*map(_turns, self.channels), key=lambda turn: (turn.start, turn.channel)))

    @property
    def text(self) -> str:
        """The text: that of the one channel, or all segments in the order of time."""
        if not self.has_numbers:
            return self.channels[0].transcript.text
        return run_together(turn.text for turn in self.turns)

    def timed_words(self, channel: Channel) -> list[Word]:
        """Return the words of a channel, each with times and the space before it."""
        return timed_words(channel.transcript, self.seconds)

    def segments(self, channel: Channel) -> Iterator[list[Word]]:
        """Yield the segments of a channel, as words with times."""
        return split_segments(self.timed_words(channel))


def _turns(channel: Channel) -> Iterator[Turn]:
    assert channel.number is not None
    for place, part in enumerate(channel.parts):
        yield from turns_of(channel.number, part, is_first=place == 0)


def segment_texts(transcript: Transcript, seconds: float) -> list[str]:
    """Return the texts of the segments of a transcript of `seconds`."""
    return [text_of(words) for words in split_segments(timed_words(transcript, seconds))]


def segment_languages(transcript: Transcript, seconds: float, parts: Sequence[Part]) -> list[Spoken | None]:
    """Return the identified language of each segment of a channel: that of the part with its first token."""
    ends = list(accumulate(len(part.transcript.tokens) for part in parts))
    languages = []
    for words in split_segments(timed_words(transcript, seconds)):
        place = min(bisect_right(ends, words[0].token_span[0]), len(parts) - 1)
        languages.append(parts[place].spoken)
    return languages
