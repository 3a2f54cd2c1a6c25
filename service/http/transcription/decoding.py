"""Decoding an upload, in a thread or, where that takes less time, at once."""

import logging
from functools import partial

from audio.channels import Channels
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.origin import Origin, Wanted, drain
from audio.pcm import PcmSource, RawFormat, quick_pcm
from audio.pool import NoChildError
from audio.recording import StorageFullError
from service.dispatch.errors import NoDecodeProcessError, OverloadedError
from service.http.front import Front
from service.http.transcription.form import TranscriptionForm
from service.threads import in_thread

log = logging.getLogger("steno.http")

_NO_PROCESS_SECONDS = 5  # Retry-After when no decoding process can be started


class _UnwantedError(Exception):
    """The samples are no longer needed."""


async def decode(front: Front, fields: TranscriptionForm, recording: Channels, *, is_in_memory: bool) -> Origin:
    """Decode the file of a form into a recording, of one channel unless the form asks for each by itself.

    A short file that `is_in_memory` is read on the event loop.

    Raises:
        AudioError: if the file cannot be decoded.
        RefusedError: if there is no room, or no process, to decode it.
    """
    file, raw = fields.file.file, RawFormat.of_media_type(fields.file.content_type or "")
    is_wanted = True

    def wanted(samples: bytes | memoryview, channel: int) -> None:
        # A short recording is decoded to its end: to stop it may cost a decoding process, and starting one takes time.
        if not is_wanted and recording.seconds > front.settings.max_utterance_seconds:
            raise _UnwantedError
        recording.append(samples, channel)

    def leave() -> None:
        nonlocal is_wanted
        is_wanted = False

    limits = AudioLimits(max_seconds=front.settings.max_audio_seconds)
    asked = Wanted(recording.rate, limits, fields.multichannel, fields.track)
    try:
        if is_in_memory and raw is None and (pcm := quick_pcm(file, recording.rate)):
            return drain(PcmSource(file, pcm, limits), recording.append, "wav", asked)
        work = partial(front.decode_pool.decode_into, wanted, file, asked, raw)
        with front.intake.decoding():
            return await in_thread(front.decode_threads, work, leave)
    except AudioError as error:
        front.metrics.audio_decode.labels("unknown", error.code).inc()
        raise
    except NoChildError as error:
        log.warning("no decoding process", extra={"reason": str(error)})
        raise NoDecodeProcessError("The service cannot decode this recording now.", _NO_PROCESS_SECONDS) from None
    except (StorageFullError, OSError):
        raise OverloadedError("The service has no room for this recording now.", retry_after=60) from None
