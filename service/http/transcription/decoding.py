"""Decoding an upload, in a thread or, where that takes less time, at once."""

import logging
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Protocol

from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.origin import Origin, Sink
from audio.pcm import is_quick
from audio.pool import NoChildError
from audio.raw import RawFormat
from audio.recording import StorageFullError
from service.dispatch.errors import NoDecodeProcessError, OverloadedError
from service.http.front import Front
from service.http.transcription.schemas import TranscriptionForm
from service.threads import in_thread

log = logging.getLogger("steno.http")

_NO_PROCESS_SECONDS = 5  # Retry-After when no decoding process can be started


class Decoded(Protocol):
    """What gets the samples: a recording, or its channels."""

    @property
    def rate(self) -> int:
        """Samples per second."""

    @property
    def seconds(self) -> float:
        """Its length so far."""


class _UnwantedError(Exception):
    """The samples are no longer needed."""


async def decode(
    front: Front, fields: TranscriptionForm, recording: Decoded, sink: Sink, *, is_in_memory: bool = True
) -> Origin:
    """Decode an upload.

    Args:
        front: the service.
        fields: the form with the file.
        recording: what gets the samples.
        sink: adds them to it.
        is_in_memory: whether a short file is in memory, and so may be read on the event loop.

    Raises:
        AudioError: if the file cannot be decoded.
        RefusedError: if there is no room, or no process, to decode it.
    """
    file, raw = fields.file.file, RawFormat.of_media_type(fields.file.content_type or "")
    try:
        if is_in_memory and raw is None and is_quick(file, recording.rate):
            limits, rate = AudioLimits(max_seconds=front.settings.max_audio_seconds), recording.rate
            return front.decode_pool.decode_into(
                sink, file, rate=rate, limits=limits, by_channel=fields.multichannel, track=fields.track
            )
        with front.intake.decoding():
            # A short recording is decoded to its end: to stop it may cost a decoding process, and starting one takes
            # time.
            return await decode_in_thread(
                front,
                fields,
                file,
                sink,
                recording.rate,
                lambda: recording.seconds > front.settings.max_utterance_seconds,
            )
    except AudioError as error:
        front.metrics.audio_decode.labels("unknown", error.code).inc()
        raise
    except NoChildError as error:
        log.warning("no decoding process", extra={"reason": str(error)})
        raise NoDecodeProcessError("The service cannot decode this recording now.", _NO_PROCESS_SECONDS) from None
    except (StorageFullError, OSError):
        raise OverloadedError("The service has no room for this recording now.", retry_after=60) from None


async def decode_in_thread(
    front: Front, fields: TranscriptionForm, file: BinaryIO, sink: Sink, rate: int, may_stop: Callable[[], bool]
) -> Origin:
    """Decode a file in a thread.

    Args:
        front: the service.
        fields: the form.
        file: its file, or the beginning of that.
        sink: gets the samples.
        rate: samples per second.
        may_stop: whether decoding may be stopped when the call is cancelled.

    Raises:
        AudioError: if the file cannot be decoded.
        NoChildError: if no child can be started.
        StorageFullError: if the samples cannot be stored.
        OSError: if the system has no room or no descriptor.
    """
    is_wanted = True

    def wanted(samples: bytes | memoryview, channel: int) -> None:
        if not is_wanted and may_stop():
            raise _UnwantedError
        sink(samples, channel)

    def leave() -> None:
        nonlocal is_wanted
        is_wanted = False

    work = partial(
        front.decode_pool.decode_into,
        wanted,
        file,
        rate=rate,
        limits=AudioLimits(max_seconds=front.settings.max_audio_seconds),
        raw=RawFormat.of_media_type(fields.file.content_type or ""),
        by_channel=fields.multichannel,
        track=fields.track,
    )
    return await in_thread(front.decode_threads, work, leave)
