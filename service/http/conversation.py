"""Transcribing the channels of a recording separately, such as the two sides of a call, in one answer."""

import asyncio
import itertools
import operator
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
from starlette.responses import PlainTextResponse, Response

from audio.origin import Origin
from audio.segment.cuts import SpeechProbabilities
from service.dispatch.cut_recording import Coverage, CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import DispatchError
from service.http.errors import error_response
from service.http.events import (
    DONE,
    Delta,
    EventStream,
    delta_event,
    deltas,
    frame,
    segment_event,
    shown,
    subtitles_of,
    with_heartbeats,
)
from service.http.formats import (
    TextLanguage,
    described_segments,
    described_word,
    detected_fields,
    json_response,
    segment_texts,
    verbose_head,
)
from service.http.parts import Parts
from service.http.pump import Pump
from service.http.reply import TranscriptionOptions, count, count_coverage, segment_languages
from service.http.telemetry import Record, note_error
from service.metrics import Metrics
from service.text_language import DetectedLanguage
from transcripts.joining import joined
from transcripts.logprobs import token_logprobs
from transcripts.scripts import run_together, separator
from transcripts.subtitles import Cue, cues, srt, vtt
from transcripts.timed_words import spread_words, timed_words
from transcripts.transcript import Transcript, Word

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Channel:
    """One side.

    Attributes:
        number: its number in the answer, from 1.
        cut_recording: its recording.
        answers: answers of its parts; None if it is silent.
        transcripts: transcripts of the parts so far.
        answered: the answers that have them.
    """

    number: int
    cut_recording: CutRecording
    answers: AsyncGenerator[Answer, None] | None
    transcripts: list[Transcript] = field(default_factory=list)
    answered: list[Answer] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"Channel {self.number}"

    @property
    def seconds(self) -> float:
        """Length of its audio; 0 if it is silent, and so not transcribed."""
        return self.cut_recording.recording.seconds if self.answers is not None else 0.0

    async def turns(self) -> AsyncGenerator["Turn", None]:
        """Yield its segments in order, and keep the parts."""
        if self.answers is None:
            return
        async with aclosing(self.answers) as answers:
            async for answer in answers:
                part, start = answer.transcript, answer.start
                if not part.text:
                    continue
                is_first = not self.transcripts
                self.transcripts.append(part)
                self.answered.append(answer)
                for delta in deltas(part):
                    known = [word.start for word in delta.words if word.start is not None]
                    start = max(start, min(known, default=start))  # in order, even if a model's times are not
                    yield Turn(self, start, answer, delta, is_first)
                    is_first = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A segment of a channel.

    Attributes:
        start: when it begins, in seconds of the recording.
        answer: the answer of its part.
        delta: its stretch of that transcript.
        is_first: whether it is the channel's first.
    """

    channel: Channel
    start: float
    answer: Answer
    delta: Delta
    is_first: bool

    @property
    def part(self) -> Transcript:
        """The transcript of its part."""
        return self.answer.transcript

    @property
    def queue_seconds(self) -> float:
        """How long the part waited for a batch."""
        return self.answer.queue_seconds

    @property
    def identify_seconds(self) -> float:
        """How long it took to identify the language of the part."""
        return self.answer.identify_seconds

    @property
    def text(self) -> str:
        """Its text."""
        return self.delta.text.strip()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request with several channels, and their transcripts.

    Attributes:
        origin: the file that the recording was decoded from.
        turns: the segments of all channels, in the order of time.
    """

    metrics: Metrics
    record: Record
    options: TranscriptionOptions
    origin: Origin
    channels: Sequence[Channel]
    turns: Parts[Turn]

    async def response(self) -> Response:
        """Return the answer when all parts are transcribed.

        Raises:
            DispatchError: if a part gets no transcript.
        """
        turns = [turn async for turn in self.turns]
        speech = {channel.number: await self._speech(channel) for channel in self.channels}
        coverage = await self._finish()
        languages = await self._language_of()
        return await self._off_loop(lambda: self._rendered(turns, speech, coverage, languages))

    def _rendered(
        self,
        turns: Sequence[Turn],
        speech: dict[int, SpeechProbabilities],
        coverage: Coverage,
        languages: "_Languages",
    ) -> Response:
        response_format = self.options.fields.response_format
        if response_format == "text":
            return PlainTextResponse("".join(f"{line}\n" for line in _lines(turns)))
        if response_format == "srt":
            return PlainTextResponse(srt(self._cues()))
        if response_format == "vtt":
            return PlainTextResponse(vtt(self._cues()))
        # Silent channels are not counted.
        usage = {"type": "duration", "seconds": sum(channel.seconds for channel in self.channels)}
        body = self._whole(turns, languages) | {"usage": usage}
        if response_format == "verbose_json":
            head = verbose_head(languages.whole, self.origin.seconds, body["text"], coverage)
            body = head | self._timed(speech, languages) | body
        return json_response(body)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        """Run work on the transcripts of all channels, in a thread if they are long."""
        return await self.options.off_loop([part for channel in self.channels for part in channel.transcripts], work)

    def stream(self, heartbeat_seconds: float) -> EventStream:
        """Return an answer that streams segments, and a comment after each `heartbeat_seconds` without any."""
        return EventStream(with_heartbeats(self._frames(), heartbeat_seconds))

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        sent: list[Turn] = []
        fields = self.options.fields
        is_timed = fields.response_format == "verbose_json" and self.options.text_language.has_times
        subtitles = subtitles_of(fields.response_format, self.options.cue_size)
        try:
            async for turn in self.turns:
                if subtitles is not None:
                    for event in shown(subtitles.add(self._timed_words(turn), turn.channel.name)):
                        yield event
                    continue
                number = {"channel": turn.channel.number}
                delta = delta_event(turn.delta, turn.part, self.options.token_bytes, is_first=turn.is_first)
                yield frame(delta | {"delta": separator(sent[-1].text if sent else "", turn.text) + turn.text} | number)
                if is_timed:
                    words = self._timed_words(turn)
                    timed = segment_event(len(sent), words, with_words="word" in fields.timestamp_granularities)
                    language = await self._language_fields(turn)
                    yield frame(timed | {"speaker": turn.channel.name} | number | language)
                sent.append(turn)
        except DispatchError as error:  # the status is sent already; clients understand an error event
            response = error_response(error)
            note_error(self.record, response)
            yield frame(bytes(response.body))
            return
        languages = await self._language_of()
        await self._finish()
        if subtitles is not None:
            for event in await self._off_loop(lambda: [*shown(subtitles.end())]):
                yield event
            yield frame({"type": DONE, "text": subtitles.text, "duration": self.origin.seconds})
            return
        yield await self._off_loop(
            lambda: frame({"type": DONE, **self._whole(sent, languages), "duration": self.origin.seconds})
        )

    async def _language_fields(self, turn: Turn) -> dict[str, Any]:
        if (identified := turn.answer.identified) and not self.options.fields.target_language:
            return detected_fields(DetectedLanguage(*identified.part))
        detected = (await self.options.detect_language(lambda: [turn.text])).languages
        return detected_fields(detected[0]) if detected else {}

    def _timed_words(self, turn: Turn) -> list[Word]:
        stretch = turn.part._replace(text=turn.delta.text, words=turn.delta.words)
        words = timed_words(stretch, turn.answer.end, turn.start)
        return words or [Word(turn.text, turn.start, turn.start, None, (0, 0))]

    async def _language_of(self) -> "_Languages":
        if not self.options.fields.includes_language:
            return _Languages(self.options.text_language, [self.options.text_language] * len(self.channels))
        if self.options.identification:
            return await self._off_loop(self._identified)
        texts = [partial(self._segment_texts, channel) for channel in self.channels]
        whole = await self.options.detect_language(lambda: [text for of_channel in texts for text in of_channel()])
        return _Languages(whole, [await self.options.detect_language(of_channel) for of_channel in texts])

    def _segment_texts(self, channel: Channel) -> list[str]:
        return segment_texts(joined(channel.transcripts), self.origin.seconds)

    def _identified(self) -> "_Languages":
        """Return the identified language of each channel; that of the channel with the most words is the whole's."""
        channels = []
        for channel in self.channels:
            last = channel.answered[-1].identified if channel.answered else None
            languages = segment_languages(joined(channel.transcripts), self.origin.seconds, channel.answered)
            channels.append(self.options.identified_language(last.recording if last else None, languages))
        words = [sum(len(part.words) for part in channel.transcripts) for channel in self.channels]
        return _Languages(channels[words.index(max(words))], channels)

    def _whole(self, turns: Sequence[Turn], languages: "_Languages") -> dict[str, Any]:
        """Return the text in the order of time, and channel by channel."""
        token_bytes = self.options.token_bytes
        described = []
        includes_language = self.options.fields.includes_language
        for channel, text_language in zip(self.channels, languages.channels, strict=True):
            transcript = joined(channel.transcripts)
            language = text_language.part_fields if includes_language else {}
            logprobs = {} if token_bytes is None else {"logprobs": token_logprobs(transcript, token_bytes)}
            described.append({"channel": channel.number, "text": transcript.text, **language, **logprobs})
        language = languages.whole.language_fields if includes_language else {}
        return {"text": run_together(turn.text for turn in turns), **language, "channels": described}

    def _timed(self, speech: dict[int, SpeechProbabilities], languages: "_Languages") -> dict[str, Any]:
        """Return the requested words and segments of all channels, in the order of time."""
        seconds, granularities = self.origin.seconds, self.options.fields.timestamp_granularities
        words, segments = [], []
        for channel, text_language in zip(self.channels, languages.channels, strict=True):
            transcript, number = joined(channel.transcripts), {"channel": channel.number}
            words += [described_word(word) | number for word in spread_words(transcript, seconds)]
            if self.options.has_segments:
                described = described_segments(transcript, seconds, speech[channel.number], text_language.languages)
                segments += [segment | number for segment in described]
        timed: dict[str, Any] = {}
        if "word" in granularities:
            timed["words"] = sorted(words, key=lambda word: word["start"])
        if self.options.has_segments:
            segments.sort(key=lambda segment: segment["start"])
            timed["segments"] = [segment | {"id": number} for number, segment in enumerate(segments)]
        return timed

    async def _speech(self, channel: Channel) -> SpeechProbabilities:
        if self.options.has_segments and any(part.words for part in channel.transcripts):
            return await channel.cut_recording.speech()
        return np.empty(0, np.float32)

    def _cues(self) -> list[Cue]:
        """Return the cues of all channels; people who speak at the same time have cues at the same time."""
        all_cues = [
            cue
            for channel in self.channels
            for cue in cues(
                timed_words(joined(channel.transcripts), self.origin.seconds), self.options.cue_size, channel.name
            )
        ]
        return sorted(all_cues, key=lambda cue: cue.start)

    async def _finish(self) -> Coverage:
        self.turns.note_end()
        words = sum(len(part.words) for channel in self.channels for part in channel.transcripts)
        count(self.metrics, self.options, self.origin, words)
        coverages = [await channel.cut_recording.coverage() for channel in self.channels]
        coverage = reduce(operator.add, coverages)
        self.record.coverage = coverage
        count_coverage(self.metrics, self.options, coverage)
        return coverage


@dataclass(frozen=True, slots=True)
class _Languages:
    """Language and task of the whole text, and of each channel's."""

    whole: TextLanguage
    channels: Sequence[TextLanguage]


def _lines(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield a line for each stretch in which one channel speaks."""
    for _, stretch in itertools.groupby(turns, key=lambda turn: turn.channel.number):
        sent = list(stretch)
        yield f"{sent[0].channel.name}: {run_together([turn.text for turn in sent])}"


async def in_order(channels: Sequence[AsyncGenerator[Turn, None]]) -> AsyncGenerator[Turn, None]:
    """Merge the segments of channels by their starts; of equal ones, the lower channel is first.

    All channels are transcribed at the same time, and a segment waits only for those that may come before it. Closing
    the generator closes the channels.

    Raises:
        Exception: the error of a channel, when its next segment would come.
    """
    pumps = [Pump(channel) for channel in channels]
    turns = [pump.items() for pump in pumps]
    try:
        heads = [await anext(following, None) for following in turns]
        while waiting := [(turn.start, index, turn) for index, turn in enumerate(heads) if turn is not None]:
            _, index, turn = min(waiting, key=lambda head: head[:2])
            yield turn
            heads[index] = await anext(turns[index], None)
    finally:
        await asyncio.gather(*(pump.aclose() for pump in pumps))
