"""From a decoded recording to its answer: whole, when all parts are transcribed, or as events while they come."""

import asyncio
import operator
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import NamedTuple, TypeVar

import orjson
from starlette.responses import PlainTextResponse, Response

from audio.channels import Channels
from audio.origin import Origin
from audio.recording import Recording
from audio.segment.segmenter import Segment, SegmentRule
from audio.segment.voice_activity import FRAME_SECONDS
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import DispatchError
from service.dispatch.recordings import Options
from service.http.errors import error_response
from service.http.front import Front
from service.http.telemetry import Record
from service.http.transcription.decoding import decode
from service.http.transcription.options import TranscriptionOptions
from service.http.transcription.stream import HEARTBEAT_SECONDS, EventStream, frame, with_heartbeats
from service.threads import in_thread
from transcripts.events import Event, Events
from transcripts.joining import Gap, joined
from transcripts.json_formats import as_diarized_json, as_json, as_verbose_json
from transcripts.spoken_language import Spoken
from transcripts.text_formats import as_subtitles, as_text
from transcripts.transcript import Transcript
from transcripts.transcription import (
    Channel,
    Language,
    Part,
    Speech,
    Transcription,
    Turn,
    segment_languages,
    segment_texts,
    spoken_fields,
    turns_of,
)
from transcripts.written_language import language_of_parts, written_language

T = TypeVar("T")

# The subtitles of 250 tokens take 1 ms, which is all that may run on the event loop; a hand-over takes 0.1 ms.
_TOKENS_ON_LOOP = 250


async def answer(
    front: Front,
    record: Record,
    options: TranscriptionOptions,
    resources: AsyncExitStack,
    free_upload: Callable[[], Awaitable[None]],
    *,
    is_background: bool = False,
) -> Response:
    """Decode a recording, transcribe it, and return the answer in the requested format.

    The record gets the times of stages; the resources hold what the answer needs until they are closed; `free_upload`
    is called when the file is decoded; a job's answer is one in the background.

    Raises:
        RequestError: if its key's limit on audio is used up.
        AudioError: if the file cannot be decoded.
        DispatchError: if it gets no transcript.
    """
    began, fields = time.monotonic(), options.fields
    allowance = front.access.allowance(record.caller)
    if is_background:
        allowance.check_audio()  # before it is decoded for nothing
    rate, whole_seconds = options.model.ready.sample_rate, front.settings.max_utterance_seconds
    channels = Channels(rate, whole_seconds, are_apart=fields.multichannel)
    resources.enter_context(channels)
    origin = await decode(front, fields, channels, is_in_memory=not is_background)
    await free_upload()  # the request may wait long, and its samples take memory already
    record.stages["decode"] = time.monotonic() - began
    record.audio_seconds = origin.seconds
    if is_background:
        await allowance.until_audio()  # others may have used it up; a job that runs again is decoded twice
    answers = partial(_answers, front, record, options, is_background=is_background)
    sides = []
    for number, recording in enumerate(channels):
        is_silent = fields.multichannel and channels.is_silent(number)
        cut = _cut(front, options, recording)
        named = number + 1 if fields.multichannel else None
        sides.append(_Side(named, cut, None if is_silent else answers(cut), tags=options.language_tags))
    if fields.multichannel:
        record.audio_seconds = sum(side.seconds for side in sides)
    items = [side.items() for side in sides]
    async with front.core.use_key(allowance, record.audio_seconds):
        pieces = items[0] if len(items) == 1 else in_order(items)
        awaited = await Items.begin(pieces, record, HEARTBEAT_SECONDS if fields.stream else None)
        resources.push_async_callback(awaited.aclose)
        reply = Reply(front, record, options, origin, sides, awaited)
        return reply.stream() if fields.stream else await reply.response()


def _cut(front: Front, options: TranscriptionOptions, recording: Recording) -> CutRecording:
    """Return a recording with its cuts."""
    longest = front.settings.max_utterance_seconds
    # Parts have the length that suits the model, even where longer ones would fit.
    piece = min(longest, options.model.info.piece_seconds or longest)
    rule = SegmentRule(piece) if recording.seconds > longest else None  # None: it is one utterance
    if options.fields.chunking_strategy is not None:
        rule = options.fields.chunking_strategy.rule(piece)
    return CutRecording(recording, rule, front.detector, front.cut_threads)


def _answers(
    front: Front, record: Record, options: TranscriptionOptions, cut: CutRecording, *, is_background: bool
) -> AsyncGenerator[Answer, None]:
    """Return the answers of a recording's parts; see `Recordings.transcribe`."""
    left = front.settings.request_timeout_seconds - record.stages.get("load", 0.0)
    asked = Options(
        *(record.caller or record.request_id, options.lane, options.prompt, options.identification),
        most_seconds=None if is_background else left,
    )
    return front.core.transcribe(cut, asked)


class _Item(NamedTuple):
    """A part of a recording or, of a numbered channel, a segment; and the answer that it comes from."""

    answer: Answer
    piece: Part | Turn

    @property
    def start(self) -> float:
        """When it begins, in seconds of the recording."""
        return self.piece.start


@dataclass(slots=True)
class _Side:
    """A channel that is transcribed.

    Attributes:
        number: its number in the answer, from 1; None if the file's channels are mixed.
        answers: answers of its parts; None if it is silent.
        parts: its parts so far; of a numbered channel, those with text.
        answered: its answered parts, in samples, and whether the model wrote anything for each.
        rescued: stretches of them that got words when transcribed again.
        spoken: its language so far, if it is identified, or the model says it.
        tags: code of a language by the token with which the model names it; empty where that is not asked for.
    """

    number: int | None
    cut: CutRecording
    answers: AsyncGenerator[Answer, None] | None
    parts: list[Part] = field(default_factory=list)
    spoken: Spoken | None = None
    answered: list[tuple[Segment, bool]] = field(default_factory=list)
    rescued: list[Gap] = field(default_factory=list)
    tags: Mapping[int, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of its audio; 0 if it is silent, and so not transcribed."""
        return self.cut.recording.seconds if self.answers is not None else 0.0

    async def items(self) -> AsyncGenerator[_Item, None]:
        """Yield its parts in order, or the segments of these, and keep the parts."""
        if self.answers is None:
            return
        async with aclosing(self.answers) as answers:
            async for answer in answers:
                self.answered.append((answer.cut, answer.has_text))
                self.rescued += answer.rescued
                identified = answer.identified
                spoken = identified.part if identified else None
                if self.tags:  # then nothing identifies it
                    spoken = written_language(answer.transcript, self.tags)
                part = Part(answer.transcript, answer.start, answer.end, spoken)
                if self.number is not None and not part.transcript.text:
                    continue
                self.parts.append(part)
                if identified:
                    self.spoken = identified.recording
                elif self.tags:
                    self.spoken = language_of_parts(self.parts)
                if self.number is None:
                    yield _Item(answer, part)
                    continue
                for turn in turns_of(self.number, part, is_first=len(self.parts) == 1):
                    yield _Item(answer, turn)


async def in_order(channels: Sequence[AsyncGenerator[_Item, None]]) -> AsyncGenerator[_Item, None]:
    """Merge the segments of channels by their starts; of equal ones, the lower channel is first.

    All channels are transcribed at the same time, and a segment waits only for those that may come before it. An error
    of a channel is raised when its next segment would come. Closing the generator closes the channels.
    """
    heads = [asyncio.ensure_future(anext(channel, None)) for channel in channels]
    try:
        while True:
            first = [(item, place) for place, head in enumerate(heads) if (item := await head) is not None]
            if not first:
                return
            item, place = min(first, key=lambda head: (head[0].start, head[1]))
            yield item
            heads[place] = asyncio.ensure_future(anext(channels[place], None))
    finally:
        for head in heads:
            head.cancel()
        await asyncio.gather(*heads, return_exceptions=True)
        await asyncio.gather(*(channel.aclose() for channel in channels))


@dataclass(frozen=True, slots=True)
class Items:
    """What comes of a recording, in order, the first of which is awaited before the answer begins; iterate once."""

    _record: Record
    _began: float  # monotonic
    _first: "asyncio.Future[_Item | None]"
    _rest: AsyncGenerator[_Item, None]

    @classmethod
    async def begin(cls, items: AsyncGenerator[_Item, None], record: Record, patience: float | None) -> "Items":
        """Wait for the first item, so that a failure until then is answered with an error's status.

        After `patience` seconds a stream begins without it, so that no proxy closes the connection; later failures are
        events of the stream.

        Raises:
            DispatchError: if there is no transcript.
        """
        began = time.monotonic()
        first: asyncio.Future[_Item | None]
        if patience is None:  # a task of its own costs time, and is not needed
            first = asyncio.get_running_loop().create_future()
        else:
            first = asyncio.ensure_future(_first(items, record, began))
        begun = cls(record, began, first, items)
        try:
            if patience is None:
                first.set_result(await _first(items, record, began))
            else:
                done, _ = await asyncio.wait({first}, timeout=patience)
                if done:
                    first.result()
        except BaseException:
            await begun.aclose()
            raise
        return begun

    async def __aiter__(self) -> AsyncIterator[_Item]:
        """Yield the items."""
        if (first := await self._first) is not None:
            yield first
        async for item in self._rest:
            yield item

    async def aclose(self) -> None:
        """Drop what is under way."""
        self._first.cancel()
        if not self._first.done():
            await asyncio.gather(self._first, return_exceptions=True)
        elif not self._first.cancelled():
            self._first.exception()  # otherwise asyncio logs one that was not retrieved
        await self._rest.aclose()

    def note_end(self) -> None:
        """Record the seconds since the first part got its batch."""
        stages = self._record.stages
        stages["infer"] = time.monotonic() - self._began - stages["queue"] - stages.get("identify", 0.0)


async def _first(items: AsyncGenerator[_Item, None], record: Record, began: float) -> _Item | None:
    first = await anext(items, None)
    waited = time.monotonic() - began
    identified = min(waited, first.answer.identify_seconds) if first else 0.0
    if identified:
        record.stages["identify"] = identified
    record.stages["queue"] = min(waited - identified, first.answer.queue_seconds) if first else 0.0
    return first


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request, made of the channels of a file, and of their parts, or segments, in order."""

    front: Front
    record: Record
    options: TranscriptionOptions
    origin: Origin
    sides: Sequence[_Side]
    items: Items

    async def response(self) -> Response:
        """Return the answer when all parts are transcribed; a part that gets no transcript is a DispatchError."""
        async for _ in self.items:
            pass
        transcription = await self._transcription()
        return await self._off_loop(lambda: self._written(transcription))

    def stream(self) -> EventStream:
        """Return an answer that streams its items, and a comment after each `HEARTBEAT_SECONDS` without any."""
        return EventStream(with_heartbeats(self._frames(), HEARTBEAT_SECONDS))

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        options, fields = self.options, self.options.fields
        events = Events(
            fields.response_format,
            size=options.cue_size,
            token_bytes=options.token_bytes,
            is_timed=fields.response_format in ("verbose_json", "diarized_json") and options.has_times,
            with_words="word" in fields.timestamp_granularities,
        )
        try:
            async for item in self.items:
                for event in await self._events(events, item.piece):
                    yield frame(event)
        except DispatchError as error:  # the status is sent already; clients understand an error event
            response = error_response(error)
            self.record.error = response.code
            yield frame(bytes(response.body))
            return
        result = await self._transcription()
        last = partial(events.done, result, asks_language=fields.includes_language)
        for written in await self._off_loop(lambda: [frame(event) for event in last()]):
            yield written

    async def _events(self, events: Events, piece: Part | Turn) -> list[Event]:
        part = piece if isinstance(piece, Part) else piece.part
        languages: Sequence[Spoken | None] = ()
        if events.is_timed and self.options.fields.includes_language:
            languages = await self._spoken_in(part, partial(self._texts_of, piece))
        if isinstance(piece, Part):
            return await self._off_loop(lambda: [*events.part(piece, languages)], [piece.transcript])
        return [*events.turn(piece, spoken_fields(languages[0]) if languages else {})]

    def _texts_of(self, piece: Part | Turn) -> list[str]:
        """Return the texts of the segments of a part, or that of one."""
        return segment_texts(piece.transcript, self.origin.seconds) if isinstance(piece, Part) else [piece.text]

    async def _spoken_in(self, part: Part, texts: Callable[[], Sequence[str]]) -> Sequence[Spoken | None]:
        """Return the language of each segment of a part; none where that is not detected."""
        if part.spoken and not self.options.fields.target_language:
            return [part.spoken] * len(await self._off_loop(texts, [part.transcript]))
        return (await self.options.detect_language(texts)).segments

    def _written(self, result: Transcription) -> Response:
        options, fields = self.options, self.options.fields
        if fields.response_format == "text":
            return PlainTextResponse(as_text(result))
        if fields.response_format in ("srt", "vtt"):  # text/plain, as from OpenAI, whose older clients read that alone
            return PlainTextResponse(as_subtitles(result, fields.response_format, options.cue_size))
        if fields.response_format == "json":
            body = as_json(result, asks_language=fields.asks_language, token_bytes=options.token_bytes)
        elif fields.response_format == "diarized_json":
            body = as_diarized_json(result)
        else:
            words = "word" in fields.timestamp_granularities
            body = as_verbose_json(result, words=words, segments=options.has_segments)
        return Response(orjson.dumps(body), media_type="application/json")

    async def _transcription(self) -> Transcription:
        """Return what was transcribed, when all parts are transcribed, and count it."""
        parts = [[part.transcript for part in side.parts] for side in self.sides]
        transcripts = await self._off_loop(lambda: [joined(of_side) for of_side in parts])
        whole, languages = await self._languages(transcripts)
        self.items.note_end()
        coverage = reduce(operator.add, [await side.cut.coverage(side.answered, side.rescued) for side in self.sides])
        channels = [
            Channel(side.number, side.seconds, transcript, side.parts, language, await self._speech(side, transcript))
            for side, transcript, language in zip(self.sides, transcripts, languages, strict=True)
        ]
        extent = self.origin.track, self.origin.tracks, self.origin.truncated
        result = Transcription(self.origin.seconds, channels, whole, coverage, *extent)
        self._count(result)
        return result

    async def _speech(self, side: _Side, transcript: Transcript) -> Speech:
        if not (self.options.has_segments and transcript.words):
            return Speech()
        return Speech(await side.cut.speech(side.rescued), FRAME_SECONDS)

    async def _languages(self, transcripts: Sequence[Transcript]) -> tuple[Language, Sequence[Language]]:
        """Return the language of the whole text, and of each channel's."""
        options, seconds = self.options, self.origin.seconds
        if not options.fields.includes_language:  # without dividing an hour of words into segments
            return options.language, [options.language] * len(transcripts)
        if options.identification or any(side.spoken for side in self.sides):
            segments = await self._off_loop(
                lambda: [
                    segment_languages(transcript, seconds, side.parts)
                    for transcript, side in zip(transcripts, self.sides, strict=True)
                ]
            )
            of_channels = [options.identified(side.spoken, of) for side, of in zip(self.sides, segments, strict=True)]
            words = [len(transcript.words) for transcript in transcripts]
            return of_channels[words.index(max(words))], of_channels
        texts = [partial(segment_texts, transcript, seconds) for transcript in transcripts]
        whole = await options.detect_language(lambda: [text for of_channel in texts for text in of_channel()])
        if len(texts) == 1:
            return whole, [whole]
        return whole, [await options.detect_language(of_channel) for of_channel in texts]

    async def _off_loop(self, work: Callable[[], T], transcripts: Sequence[Transcript] | None = None) -> T:
        """Run work on transcripts, by default all, in a thread; here, if they are short: a hand-over takes longer."""
        if transcripts is None:
            transcripts = [part.transcript for side in self.sides for part in side.parts]
        is_short = sum(len(one.tokens) for one in transcripts) <= _TOKENS_ON_LOOP
        return work() if is_short else await in_thread(self.front.cut_threads, work)

    def _count(self, result: Transcription) -> None:
        metrics, model, origin = self.front.metrics, self.options.model.id, self.origin
        words = sum(len(channel.transcript.words) for channel in result.channels)
        metrics.audio_duration.observe(origin.seconds)
        metrics.audio_decode.labels(origin.container, "truncated" if origin.truncated else "ok").inc()
        metrics.words.labels(model).inc(words)
        if not words:
            metrics.empty_transcripts.labels(model).inc()
        self.record.coverage = coverage = result.coverage
        metrics.audio_without_words.labels("no_speech", model).inc(coverage.skipped)
        metrics.audio_without_words.labels("speech", model).inc(coverage.speech_without_text)
        metrics.audio_without_words.labels("rescued", model).inc(coverage.rescued)
