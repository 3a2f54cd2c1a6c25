"""The options of a request, and the reply to it: all at once, or streamed part by part."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np
from starlette.responses import Response

from audio.origin import Origin
from service.dispatch.cut_recording import Coverage, CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import DispatchError
from service.dispatch.identification import Identification
from service.dispatch.utterance import Lane
from service.http.errors import error_response
from service.http.events import (
    DONE,
    EventStream,
    delta_frames,
    done_frame,
    frame,
    segment_frames,
    shown,
    subtitles_of,
    with_heartbeats,
)
from service.http.formats import Task, TextLanguage, has_segments, render, segment_texts
from service.http.loaded_model import LoadedModel
from service.http.parts import Parts
from service.http.schemas import LanguageSource, TranscriptionForm
from service.http.telemetry import Record, note_error
from service.metrics import Metrics
from service.text_language import DetectedLanguage, detect_languages
from service.threads import in_thread
from transcripts.joining import joined
from transcripts.prompt import Prompt
from transcripts.segments import split_segments
from transcripts.spoken_language import Spoken
from transcripts.subtitle_stream import SubtitleStream
from transcripts.subtitles import CueSize
from transcripts.timed_words import timed_words
from transcripts.transcript import Transcript

T = TypeVar("T")

# The subtitles of 250 tokens take 1 ms, which is all that may run on the event loop; a hand-over takes 0.1 ms.
_TOKENS_ON_LOOP = 250


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """The options of a transcription: a validated form, and the model that it names.

    Attributes:
        model: its model.
        lane: its model and decoder.
        prompt: its prompt.
        threads: threads for detecting languages, and for writing long answers.
        usual_size: default size of cues.
        identification: how the spoken language is identified; None if it is known, assumed, or detected in the text.
    """

    fields: TranscriptionForm
    model: LoadedModel
    lane: Lane
    prompt: Prompt
    threads: Executor
    usual_size: CueSize
    identification: Identification | None = None

    @property
    def text_language(self) -> TextLanguage:
        """Language and task of the text; a language that must be detected is None."""
        fields, info = self.fields, self.model.info
        language, source = self._spoken
        target = fields.target_language or language
        task: Task = "transcribe" if target == language else "translate"
        if fields.target_language:
            source = "request"
        return TextLanguage(task, target, has_times=info.capabilities.word_timestamps, source=source)

    @property
    def _spoken(self) -> tuple[str | None, LanguageSource]:
        fields, spoken = self.fields, self.model.languages
        if fields.language:
            return fields.language, "request"
        if len(spoken) == 1:
            return spoken[0], "model"
        if self.identification:
            return None, "audio"
        return (self.model.assumed_language(fields), "assumed") if self.model.info.takes_prompts else (None, "text")

    async def off_loop(self, parts: Sequence[Transcript], work: Callable[[], T]) -> T:
        """Run work on transcripts in a thread; if they are short, here, because a hand-over would take longer."""
        is_short = sum(len(part.tokens) for part in parts) <= _TOKENS_ON_LOOP
        return work() if is_short else await in_thread(self.threads, work)

    async def detect_language(self, segments: Callable[[], Sequence[str]]) -> TextLanguage:
        """Return language and task of a text; the language is detected if it is not known.

        Args:
            segments: returns the texts of its segments; called in a thread.
        """
        text_language = self.text_language
        if text_language.language or text_language.source != "text":
            return text_language
        among = self.fields.languages or self.model.languages
        whole, each = await in_thread(self.threads, lambda: detect_languages(segments(), among))
        if whole is None:
            return text_language
        return replace(text_language, language=whole.language, probability=whole.probability, languages=each)

    def identified_language(
        self, recording: Spoken | None, segments: Sequence[DetectedLanguage | None] = ()
    ) -> TextLanguage:
        """Return language and task of a text whose spoken language was identified.

        Args:
            recording: the language of the recording; None if there was nothing to identify.
            segments: the language of each segment.
        """
        text, target = self.text_language, self.fields.target_language
        if recording is None:
            return text
        if target:
            return replace(text, task="transcribe" if target == recording.language else "translate")
        return replace(text, language=recording.language, probability=recording.probability, languages=segments)

    @property
    def cue_size(self) -> CueSize:
        """The size of cues."""
        fields = self.fields
        return CueSize(
            fields.subtitle_characters or self.usual_size.characters,
            fields.subtitle_lines or self.usual_size.lines,
            fields.subtitle_seconds or self.usual_size.seconds,
        )

    @property
    def token_bytes(self) -> Sequence[bytes] | None:
        """The text of each token, if log-probabilities are wanted."""
        return self.model.token_bytes if "logprobs" in self.fields.include else None

    @property
    def has_segments(self) -> bool:
        """Whether the answer lists segments with their share of speech."""
        fields = self.fields
        return fields.response_format == "verbose_json" and has_segments(
            fields.timestamp_granularities, self.text_language
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request for one recording, made of the transcripts of its parts.

    Attributes:
        origin: the file that the recording was decoded from.
        parts: its parts, in order.
        cut_recording: the recording.
    """

    metrics: Metrics
    record: Record
    options: TranscriptionOptions
    origin: Origin
    parts: Parts[Answer]
    cut_recording: CutRecording

    async def response(self) -> Response:
        """Return the answer when all parts are transcribed.

        Raises:
            DispatchError: if a part gets no transcript.
        """
        answers = [answer async for answer in self.parts]
        transcripts = [answer.transcript for answer in answers]
        transcript = await self.options.off_loop(transcripts, lambda: joined(transcripts))
        fields = self.options.fields
        speech = np.empty(0, np.float32)
        if self.options.has_segments and transcript.words:
            speech = await self.cut_recording.speech()
        text_language = await self._language_of(transcript, answers)
        coverage = await self._finish(transcript)
        work = partial(
            render,
            transcript,
            coverage=coverage,
            seconds=self.origin.seconds,
            response_format=fields.response_format,
            granularities=fields.timestamp_granularities,
            text_language=text_language,
            token_bytes=self.options.token_bytes,
            speech=speech,
            asks_language=fields.asks_language,
            size=self.options.cue_size,
        )
        return await self.options.off_loop(transcripts, work)

    def stream(self, heartbeat_seconds: float) -> EventStream:
        """Return an answer that streams parts, and a comment after each `heartbeat_seconds` without any."""
        return EventStream(with_heartbeats(self._frames(), heartbeat_seconds))

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        sent: list[Transcript] = []
        answers: list[Answer] = []
        fields, segments = self.options.fields, 0
        is_timed = fields.response_format == "verbose_json" and self.options.text_language.has_times
        subtitles = subtitles_of(fields.response_format, self.options.cue_size)
        try:
            async for answer in self.parts:
                part = answer.transcript
                answers.append(answer)
                if subtitles is not None:
                    for event in await self.options.off_loop([part], partial(_cue_events, subtitles, answer)):
                        yield event
                    sent.append(part)
                elif part.text:
                    for event in delta_frames(part, self.options.token_bytes, sent[-1].text if sent else ""):
                        yield event
                    if is_timed:
                        with_words = "word" in fields.timestamp_granularities
                        text_language = await self._language_of(part, [answer])
                        timed = partial(timed_words, part, answer.end, answer.start)
                        words = await self.options.off_loop([part], timed)
                        for event in segment_frames(words, segments, text_language.languages, with_words=with_words):
                            segments += 1
                            yield event
                    sent.append(part)
        except DispatchError as error:  # the status is sent already; clients understand an error event
            response = error_response(error)
            note_error(self.record, response)
            yield frame(bytes(response.body))
            return
        transcript = await self.options.off_loop(sent, lambda: joined(sent))
        text_language = await self._language_of(transcript, answers)
        await self._finish(transcript)
        if subtitles is not None:
            for event in await self.options.off_loop(sent, lambda: [*shown(subtitles.end())]):
                yield event
            yield frame({"type": DONE, "text": subtitles.text, "duration": self.origin.seconds})
            return
        language = text_language.language_fields if fields.includes_language else {}
        done = partial(done_frame, transcript, self.origin.seconds, self.options.token_bytes, language)
        yield await self.options.off_loop(sent, done)

    async def _language_of(self, transcript: Transcript, answers: Sequence[Answer]) -> TextLanguage:
        """Return language and task of a transcript that was joined from these answers."""
        if not self.options.fields.includes_language:
            return self.options.text_language  # without dividing an hour of words into segments
        if self.options.identification:
            recording = answers[-1].identified.recording if answers and answers[-1].identified else None
            of_segments = partial(segment_languages, transcript, self.origin.seconds, answers)
            languages = await self.options.off_loop([transcript], of_segments)
            return self.options.identified_language(recording, languages)
        return await self.options.detect_language(partial(segment_texts, transcript, self.origin.seconds))

    async def _finish(self, transcript: Transcript) -> Coverage:
        self.parts.note_end()
        count(self.metrics, self.options, self.origin, len(transcript.words))
        self.record.coverage = coverage = await self.cut_recording.coverage()
        count_coverage(self.metrics, self.options, coverage)
        return coverage


def _cue_events(subtitles: SubtitleStream, answer: Answer) -> list[bytes]:
    return [*shown(subtitles.add(timed_words(answer.transcript, answer.end, answer.start)))]


def segment_languages(
    transcript: Transcript, seconds: float, answers: Sequence[Answer]
) -> list[DetectedLanguage | None]:
    """Return the identified language of each segment: that of the part with its first token.

    Args:
        transcript: the transcript of a recording.
        seconds: length of the recording.
        answers: the answers that it was joined from.
    """
    ends = list(accumulate(len(answer.transcript.tokens) for answer in answers))
    languages: list[DetectedLanguage | None] = []
    for words in split_segments(timed_words(transcript, seconds)):
        place = min(bisect_right(ends, words[0].token_span[0]), len(answers) - 1)
        identified = answers[place].identified
        languages.append(DetectedLanguage(*identified.part) if identified else None)
    return languages


def count(metrics: Metrics, options: TranscriptionOptions, origin: Origin, words: int) -> None:
    """Count a transcribed recording and its words."""
    metrics.audio_duration.observe(origin.seconds)
    metrics.audio_bytes.labels(origin.container).inc(options.fields.file.size or 0)
    metrics.audio_decode.labels(origin.container, "truncated" if origin.truncated else "ok").inc()
    metrics.words.labels(options.model.id).inc(words)
    if not words:
        metrics.empty_transcripts.labels(options.model.id).inc()


def count_coverage(metrics: Metrics, options: TranscriptionOptions, coverage: Coverage) -> None:
    """Count the audio of a recording that was skipped, and speech without text."""
    metrics.audio_skipped_seconds.labels(options.model.id).inc(coverage.skipped)
    metrics.speech_without_text_seconds.labels(options.model.id).inc(coverage.speech_without_text)
