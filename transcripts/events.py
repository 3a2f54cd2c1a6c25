"""`stream=true`: the events of an answer, as objects: those of each part or turn as it comes, and then the whole."""

from collections.abc import Iterator, Sequence
from typing import Any

from transcripts.json_formats import described_word, diarized_segment, whole
from transcripts.logprobs import token_logprobs
from transcripts.scripts import separator
from transcripts.segments import split_segments
from transcripts.spoken_language import Spoken
from transcripts.subtitle_stream import SubtitleStream
from transcripts.subtitles import CueSize
from transcripts.timed_words import text_of, timed_words
from transcripts.transcript import Transcript, Word
from transcripts.transcription import Part, Stretch, Transcription, Turn, name_of, spoken_fields, stretches

DELTA = "transcript.text.delta"
DONE = "transcript.text.done"

Event = dict[str, Any]


class Events:
    """Writes the events of one answer. Parts of a recording come in order, turns of numbered channels in that of time.

    Attributes:
        is_timed: whether segments have an event with their times, and ``with_words`` of their words too.
    """

    def __init__(
        self,
        response_format: str,
        *,
        size: CueSize,
        token_bytes: Sequence[bytes] | None = None,
        is_timed: bool = False,
        with_words: bool = False,
    ) -> None:
        self._token_bytes = token_bytes
        self.is_timed = is_timed
        self._with_words = with_words
        self._is_diarized = response_format == "diarized_json"
        self._before = ""  # the end of the text sent so far
        self._segments = 0
        is_shown = response_format in ("srt", "vtt")
        self._subtitles = SubtitleStream(is_vtt=response_format == "vtt", size=size) if is_shown else None

    def part(self, part: Part, languages: Sequence[Spoken | None] = ()) -> Iterator[Event]:
        """Yield the events of a part of a recording, with the language of each of its segments if that is wanted."""
        transcript = part.transcript
        if self._subtitles is not None:
            yield from _shown(self._subtitles.add(timed_words(transcript, part.end, part.start)))
            return
        if not transcript.text:
            return
        lead, is_first = separator(self._before, transcript.text), not self._before
        for stretch in stretches(transcript):
            yield self._delta(stretch, transcript, is_first=is_first) | {"delta": lead + stretch.text}
            lead = ""
        self._before = transcript.text
        if self.is_timed:
            for place, words in enumerate(split_segments(timed_words(transcript, part.end, part.start))):
                yield self._segment(words) | (spoken_fields(languages[place]) if languages else {})

    def turn(self, turn: Turn, language: Event) -> Iterator[Event]:
        """Yield the events of a segment of a numbered channel; `language` has the fields of its language."""
        if self._subtitles is not None:
            yield from _shown(self._subtitles.add(turn.words, name_of(turn.channel)))
            return
        number = {"channel": turn.channel}
        delta = separator(self._before, turn.text) + turn.text
        yield self._delta(turn.stretch, turn.part.transcript, is_first=turn.is_first) | {"delta": delta} | number
        self._before = turn.text
        if self._is_diarized:
            yield diarized_segment(self._segments, turn)
            self._segments += 1
        elif self.is_timed:
            yield self._segment(turn.words) | {"speaker": name_of(turn.channel)} | number | language

    def done(self, result: Transcription, *, asks_language: bool) -> Iterator[Event]:
        """Yield the remaining cues, and the whole text; no `usage`, which counts tokens in OpenAI's streams."""
        if self._subtitles is not None:
            yield from _shown(self._subtitles.end())
            yield {"type": DONE, "text": self._subtitles.text, "duration": result.seconds}
            return
        body = whole(result, asks_language=asks_language, token_bytes=self._token_bytes)
        yield {"type": DONE, **body, "duration": result.seconds}

    def _delta(self, stretch: Stretch, of: Transcript, *, is_first: bool) -> Event:
        """Return the event of a stretch of a transcript, without its text; `is_first`: of the first of its channel."""
        event: Event = {"type": DELTA, "delta": ""}
        if self._token_bytes is not None:
            event["logprobs"] = token_logprobs(of, self._token_bytes, stretch.token_span, begins=is_first)
        return event

    def _segment(self, words: Sequence[Word]) -> Event:
        """Return the event of a segment with its times, in the shape of OpenAI's events for speakers."""
        event: Event = {
            "type": "transcript.text.segment",
            "id": str(self._segments),
            "start": words[0].start,
            "end": words[-1].end,
            "text": text_of(words),
            "speaker": "",  # required by clients; speakers within a channel are not distinguished
        }
        self._segments += 1
        return event | ({"words": [described_word(word) for word in words]} if self._with_words else {})


def _shown(text: str) -> Iterator[Event]:
    if text:
        yield {"type": DELTA, "delta": text}
