"""Transcribe many files, short or hours long: threads decode and cut ahead of the model, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.segment.segmenter import DEFAULT_UTTERANCE_SECONDS, Segment, SegmentRule
from bulk.errors import JobError
from bulk.parallel import ParallelTranscriber
from bulk.storage import fetched
from transcripts.prompt import Prompt
from transcripts.spoken_language import LanguageDecision, possible_languages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from audio.channels import Channels
    from audio.recording import Recording
    from audio.samples import Samples
    from models import Transcriber, Transcript
    from transcripts.spoken_language import Spoken

# On a GPU the most that the service's may have: large ones keep it busy, and no client waits for one.
CPU_BATCH_SECONDS = 240.0
GPU_BATCH_SECONDS = 1920.0
# The model sorts its input by length, so giving it a few batches at a time leaves little padding. Of a GPU's, which are
# large, fewer do, so an actor on a cluster, which holds two hours, gathers while it computes.
_CPU_BATCHES_AT_A_TIME = 4
_GPU_BATCHES_AT_A_TIME = 2
_NO_SPEECH = Segment(0, 0)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """How files are transcribed."""

    decoder: str | None = None  # one of ``model.decoders``, or None for the first
    # If it names no language, and the model has a language identifier, that one decides: once for each channel, and for
    # parts in which another language is certain.
    prompt: Prompt = field(default_factory=Prompt)
    languages: Sequence[str] = ()  # the languages that may be spoken, for that decision; empty means all of the model
    # Seconds of audio and padding that are computed at once, until a batch does not fit; None suits the device.
    batch_seconds: float | None = None
    limits: AudioLimits = field(default_factory=AudioLimits)
    # The longest utterance; longer files are cut into such. None: files of up to 40 s are not cut, and longer ones into
    # utterances of the length that suits the model.
    utterance_seconds: float | None = None
    threads: int = 4  # threads that decode and cut, each one file at a time
    by_channel: bool = False  # whether each channel is transcribed by itself; else they are mixed

    @property
    def whole_seconds(self) -> float:
        """The longest file that is not cut."""
        return DEFAULT_UTTERANCE_SECONDS if self.utterance_seconds is None else self.utterance_seconds

    def piece_seconds(self, model: Transcriber) -> float:
        """Return the longest part of a file that is cut."""
        return min(self.whole_seconds, (self.utterance_seconds or model.piece_seconds) or self.whole_seconds)


@dataclass(frozen=True, slots=True)
class Transcribed:
    """A file that was transcribed, and its language, if that was identified."""

    seconds: float
    transcript: Transcript
    spoken: Spoken | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that was not transcribed, and why in one line."""

    error: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a channel: its start and stop in seconds, and how much of it the next part shares.

    The last part of a channel has the length of the file; that of the last channel ends the file. Others have neither.
    """

    start: float
    stop: float
    shared: float
    samples: Samples
    file_seconds: float | None
    ends_file: bool


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A decoded file: its channels, and the utterances of each, which has at least one; without speech it is empty."""

    channels: Channels
    utterances: Sequence[Sequence[Segment]]


def transcribe_files(model: Transcriber, locations: Iterable[str], options: Options) -> Iterator[Transcribed | Failed]:
    """Yield the outcome of each file, whose channels are mixed; see ``transcribe_channels``."""
    for outcome in transcribe_channels(model, locations, options):
        yield outcome if isinstance(outcome, Failed) else outcome[0]


def transcribe_channels(
    model: Transcriber, locations: Iterable[str], options: Options
) -> Iterator[Sequence[Transcribed] | Failed]:
    """Yield the outcomes of the channels of each file, by path or URL, in the order given; one, if they are mixed.

    A silent one of several has an empty transcript, and costs nothing. The locations are iterated in a thread. A few
    batches of files, or of their parts, are held in memory, and as many more, which are gathered meanwhile.

    Raises:
        JobError: if no decoding process can be started, or the model does not work in the dtype chosen for it.
    """
    from transcripts.joining import Joiner, joined, shifted

    joiner = Joiner()  # of the current channel, like its parts so far
    parts_so_far: list[Transcript] = []
    channels: list[Transcribed] = []  # the channels so far of the current file
    is_on_cpu = model.device.type == "cpu"
    batch_seconds = options.batch_seconds or (CPU_BATCH_SECONDS if is_on_cpu else GPU_BATCH_SECONDS)
    languages = _Languages(model, options)
    at_a_time = (_CPU_BATCHES_AT_A_TIME if is_on_cpu else _GPU_BATCHES_AT_A_TIME) * batch_seconds
    with (
        ThreadPoolExecutor(1) as thread,
        closing(_Decoders(options.threads)) as decoders,
        ParallelTranscriber(model, options.decoder, options.prompt, batch_seconds) as transcribed,
    ):
        parts = _parts(_decoded(model, locations, options, decoders))
        chunks = _chunks(parts, at_a_time * model.sample_rate)
        for chunk in _ahead(chunks, thread):
            parts_of_chunk = [part for part in chunk if isinstance(part, _Part)]
            spoken, wholes = languages.of(parts_of_chunk)
            transcripts = transcribed([part.samples for part in parts_of_chunk], spoken)
            answers = zip(transcripts, wholes, strict=True)
            for part in chunk:
                if isinstance(part, Failed):
                    yield part
                    continue
                transcript, whole = next(answers)
                moved = shifted(transcript, part.start, round(part.start / model.seconds_per_frame))
                parts_so_far.append(joiner.push(moved, part.stop, part.shared))
                if part.file_seconds is not None:
                    channels.append(Transcribed(part.file_seconds, joined(parts_so_far), whole))
                    joiner, parts_so_far = Joiner(), []
                if part.ends_file:
                    yield channels
                    channels = []


def _ahead(items: Iterator[T], thread: ThreadPoolExecutor) -> Iterator[T]:
    """Yield items, while a thread gathers the next one."""
    following = thread.submit(next, items, None)
    while (item := following.result()) is not None:
        following = thread.submit(next, items, None)
        yield item


class _Languages:
    """Decides on the languages of parts, channel by channel; takes that of the prompt, if it names one."""

    def __init__(self, model: Transcriber, options: Options) -> None:
        self._identifier = model.language_identifier if options.prompt.language is None else None
        self._rate = model.sample_rate  # of the parts
        self._possible = possible_languages(options.languages or model.languages or (), options.prompt.target_language)
        self._options = options
        self._decision = self._new()

    def of(self, parts: Sequence[_Part]) -> tuple[list[str | None], list[Spoken | None]]:
        """Return the language of each part, and that of its channel so far; None where nothing identifies it."""
        if self._identifier is None:
            return [self._options.prompt.language] * len(parts), [None] * len(parts)
        batch_seconds = self._options.batch_seconds or CPU_BATCH_SECONDS  # on a GPU too: it hears 30 s of each
        found = self._identifier.identify([part.samples for part in parts], batch_seconds, self._rate)
        languages: list[str | None] = []
        wholes: list[Spoken | None] = []
        for part, probabilities in zip(parts, found, strict=True):
            seconds = len(part.samples) / self._rate
            languages.append(self._decision.add(probabilities, seconds).language if seconds else None)
            wholes.append(self._decision.whole)
            if part.file_seconds is not None:
                self._decision = self._new()
        return languages, wholes

    def _new(self) -> LanguageDecision:
        return LanguageDecision(self._possible, bool(self._options.languages))


def _parts(decoded: Iterable[_Decoded | Failed]) -> Iterator[_Part | Failed]:
    """Yield the parts of each channel."""
    from audio.segment.level import audible

    for file in decoded:
        if isinstance(file, Failed):
            yield file
            continue
        with file.channels as channels:
            rate = channels.rate
            for recording, utterances in zip(channels, file.utterances, strict=True):
                for cut in utterances:
                    samples = recording.read(cut.start, cut.stop)
                    if len(samples) < len(recording):
                        samples = audible(samples)
                    seconds = recording.seconds if cut is utterances[-1] else None
                    ends_file = seconds is not None and utterances is file.utterances[-1]
                    yield _Part(cut.start / rate, cut.stop / rate, cut.shared / rate, samples, seconds, ends_file)


class _Decoders:
    """Threads, and a pool of processes, that decode and cut files until it is closed."""

    def __init__(self, threads: int) -> None:
        from audio.child_process import Confinement
        from audio.pool import DecodePool
        from models.device.resources import memory_bytes, processors

        self.threads, self.stopped = ThreadPoolExecutor(threads), threading.Event()
        # More processes than processors decode no faster, and each takes 0.2 s of one to start.
        most = Confinement().children(min(threads, processors()), memory_bytes())
        self.pool = DecodePool(most=most)

    def close(self) -> None:
        """End what is under way, and wait for the threads."""
        if not self.stopped.is_set():
            self.stopped.set()
            self.threads.shutdown(wait=False, cancel_futures=True)
            self.pool.close()
        self.threads.shutdown()


def _decoded(
    model: Transcriber, locations: Iterable[str], options: Options, decoders: _Decoders
) -> Iterator[_Decoded | Failed]:
    """Yield decoded files in order, while threads decode and cut the next few."""
    pending: deque[Future[_Decoded | Failed]] = deque()
    decode = partial(_decode, model, decoders, options)
    try:
        for location in locations:
            pending.append(decoders.threads.submit(decode, location))
            if len(pending) > 2 * options.threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        decoders.close()
        for future in pending:
            # A file whose decoder was closed may have raised an error.
            if not (future.cancelled() or future.exception() or isinstance(left_over := future.result(), Failed)):
                left_over.channels.close()


def _decode(model: Transcriber, decoders: _Decoders, options: Options, location: str) -> _Decoded | Failed:
    from audio.channels import Channels
    from audio.origin import Wanted
    from audio.pool import NoChildError
    from audio.recording import StorageFullError

    with ExitStack() as unless_decoded:
        channels = Channels(model.sample_rate, options.whole_seconds, are_apart=options.by_channel)
        unless_decoded.enter_context(channels)
        try:
            with fetched(location) as file:
                wanted = Wanted(model.sample_rate, options.limits, options.by_channel)
                decoders.pool.decode_into(channels.append, file, wanted)
        except (AudioError, StorageFullError) as error:
            return Failed(str(error))
        except OSError as error:
            return Failed(error.strerror or str(error))
        except NoChildError as error:
            raise JobError(str(error)) from error
        utterances = []
        for number, recording in enumerate(channels):
            if options.by_channel and channels.is_silent(number):
                utterances.append([_NO_SPEECH])
            elif recording.seconds <= options.whole_seconds:
                utterances.append([Segment(0, len(recording))])
            else:
                utterances.append(_cut(recording, options.piece_seconds(model), decoders.stopped))
        unless_decoded.pop_all()
    return _Decoded(channels, utterances)


def _cut(recording: Recording, longest: float, stopped: threading.Event) -> list[Segment]:
    """Return the utterances of a long recording; only the first ones once it is stopped."""
    from audio.segment.cuts import cuts
    from audio.segment.voice_activity import SpeechDetector

    found: list[Segment] = []
    for block in cuts(recording, SpeechDetector(), SegmentRule(longest)):
        found += block.utterances
        if stopped.is_set():
            break
    return found or [_NO_SPEECH]


def _chunks(parts: Iterable[_Part | Failed], samples: float) -> Iterator[list[_Part | Failed]]:
    """Yield runs of parts that together hold ``samples`` or a little more."""
    chunk: list[_Part | Failed] = []
    held = 0
    for part in parts:
        chunk.append(part)
        held += 0 if isinstance(part, Failed) else len(part.samples)
        if held >= samples:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk
