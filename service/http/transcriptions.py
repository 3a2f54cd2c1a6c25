"""POST /v1/audio/transcriptions and /v1/audio/translations: receive, decode, wait for the transcript, render."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData
from starlette.types import Receive

from audio.channels import Channels
from audio.decode import Origin
from audio.errors import AudioError
from audio.pool import NoChildError
from audio.raw import RawForm
from audio.recording import Recording, StorageFullError
from audio.segment.segmenter import SegmentRule
from service.dispatch.admission import Permit
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import NoDecodeProcessError, OverloadedError
from service.grammars import LANGUAGES as GRAMMARS
from service.http import schemas
from service.http.bodies import receive
from service.http.conversation import Channel, Conversation
from service.http.disconnect import unless_client_leaves
from service.http.events import EventStream
from service.http.fetching import fetch
from service.http.front import Front
from service.http.hearing import Asked, Hearing
from service.http.prompts import into_english, prompt_of
from service.http.served import Served
from service.http.subtitles import CueSize
from service.http.telemetry import Record
from service.http.upload import Upload, announced_bytes
from service.http.written_form import answers_in_written_form, check_written_form
from service.threads import in_thread

log = logging.getLogger("steno.http")

router = APIRouter()

_NO_PROCESS_SECONDS = 5  # after which another process may be started

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorBody, "description": meaning}
    for status, meaning in {
        400: "The request or its audio is wrong.",
        404: "No such model.",
        408: "The body came too slowly.",
        413: "The body is too large.",
        429: "The key has used up what it may have at once, or in a minute; see Retry-After.",
        500: "The server failed on this request.",
        503: "Overloaded, draining or loading; see Retry-After.",
    }.items()
}
_TRANSCRIPT: dict[str, Any] = {
    "model": schemas.Transcription | schemas.VerboseTranscription,
    "content": {kind: {} for kind in ("text/plain", "text/event-stream")},
}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": schemas.form_schema()},
            "application/json": {"schema": schemas.url_schema()},
            **{key: {"schema": schemas.RECORDING_SCHEMA} for key in ("audio/*", "application/octet-stream")},
        },
    }
}


@router.post(
    "/audio/transcriptions",
    response_model=None,
    response_description="The transcript, in the format asked for.",
    responses={200: _TRANSCRIPT, **_ERRORS},
    openapi_extra=_FORM,
)
async def transcribe(request: Request) -> Response:
    """Turn a recording into text."""
    return await _serve(request, is_translation=False)


@router.post(
    "/audio/translations",
    response_model=None,
    response_description="The transcript in English, in the format asked for.",
    responses={200: _TRANSCRIPT, **_ERRORS},
    openapi_extra=_FORM,
)
async def translate(request: Request) -> Response:
    """Turn a recording into English text, where the model translates; `language` says what is spoken."""
    return await _serve(request, is_translation=True)


async def _serve(request: Request, *, is_translation: bool) -> Response:
    front: Front = request.app.state.front
    record: Record = request.state.record
    async with AsyncExitStack() as resources:
        form, permit = await received(request, resources)
        record.stages["receive"] = time.monotonic() - record.began
        asked = await understood(front, record, form, resources, is_translation=is_translation, receive=request.receive)

        async def free_upload() -> None:
            await form.close()
            permit.free()

        response = await unless_client_leaves(request.receive, answer(front, record, asked, resources, free_upload))
        response.headers["server-timing"] = record.server_timing()
        response.headers["openai-processing-ms"] = str(round(1000 * (time.monotonic() - record.began)))
        if isinstance(response, EventStream):
            response.resources = resources.pop_all()
        return response


async def received(
    request: Request, resources: AsyncExitStack, *, is_background: bool = False
) -> tuple[FormData, Permit]:
    """Receive the form of a request behind gate 1.

    Args:
        request: the request.
        resources: hold its place, and its file, until they are closed.
        is_background: it is a job's.

    Raises:
        RequestError: if it is none, or its key may have no more.
        RefusedError: if there is no room.
    """
    front: Front = request.app.state.front
    record: Record = request.state.record
    settings, admission = front.settings, front.dispatcher.admission
    size = announced_bytes(request.headers, settings.max_upload_bytes)
    record.allowance = front.access.allowance(record.caller)
    resources.enter_context(record.allowance.enter(admission.retry_after))
    permit = resources.enter_context(admission.enter(size, is_background=is_background))
    upload = Upload(
        request.receive,
        permit,
        limit=settings.max_upload_bytes,
        silence_seconds=settings.receive_timeout_seconds,
        total_seconds=settings.max_receive_seconds,
    )
    await front.intake.turn()
    try:
        body = await receive(upload, request.headers, request.query_params)
        resources.push_async_callback(body.form.close)  # removes its spooled file
        if body.url is not None:
            fields = schemas.TranscriptionForm.parse(body.form)  # what is wrong is not worth a fetch
            await unless_client_leaves(request.receive, fetch(front.outbound, body.url, fields.file, upload))
    finally:
        record.body_bytes = permit.stored_bytes
    return body.form, permit


async def understood(
    front: Front,
    record: Record,
    form: FormData,
    resources: AsyncExitStack,
    *,
    is_translation: bool,
    receive: Receive | None = None,
) -> Asked:
    """Return what a form comes to.

    Args:
        front: has the models.
        record: notes which one it is for.
        form: the form.
        resources: hold the model until they are closed.
        is_translation: what is written must be English.
        receive: tells of a client that leaves while the model is loaded on demand; None: there is none.

    Raises:
        RequestError: if a field is wrong, or the model cannot do what is asked.
        ModelNotReadyError: if the model has not been ready yet.
    """
    fields = schemas.TranscriptionForm.parse(form)
    served = await _served(front, record, fields.model, resources, receive)
    record.model = served.id
    fields = served.narrowed(fields)
    if is_translation:
        served.check_translation()
        fields = into_english(fields, served.languages)
    for name in schemas.ignored_fields(form):
        front.metrics.ignored_fields.labels(name).inc()
    settings = front.settings
    size = CueSize(settings.subtitle_characters, settings.subtitle_lines, settings.subtitle_seconds)
    prompt = prompt_of(fields, served.info)
    asked = Asked(fields, served, served.lane(fields.decoder), prompt, front.cut_threads, size)
    if fields.format == "written":
        check_written_form(front.grammars, asked.written.language)
    return asked


async def _served(
    front: Front, record: Record, name: str | None, resources: AsyncExitStack, receive: Receive | None
) -> Served:
    """Return the model that is asked for, which stays; one that may come on demand is loaded and waited for."""
    if name is None or front.demand.is_off or front.dispatcher.catalog.find_ready(name):
        served = front.served(name)
        resources.enter_context(served.model.use())
        return served
    began = time.monotonic()
    seconds = front.settings.request_timeout_seconds - (began - record.began)
    try:
        bringing = front.bring(name, seconds, resources)
        return await (unless_client_leaves(receive, bringing) if receive else bringing)
    finally:
        record.stages["load"] = time.monotonic() - began


async def answer(
    front: Front,
    record: Record,
    asked: Asked,
    resources: AsyncExitStack,
    free_upload: Callable[[], Awaitable[None]],
    *,
    is_background: bool = False,
) -> Response:
    """Decode a recording, wait for its transcript, and write it down as it is asked for.

    Args:
        front: does the work.
        record: notes how long it takes.
        asked: what is asked for.
        resources: hold what the answer needs until they are closed.
        free_upload: called when the file is decoded.
        is_background: it is a job's.

    Raises:
        RequestError: if its key may have no more audio now.
        AudioError: if the file is none that can be decoded.
        DispatchError: if it gets no transcript.
    """
    began, fields, longest = time.monotonic(), asked.fields, front.settings.max_utterance_seconds
    rate = asked.served.ready.sample_rate
    recording: Recording | Channels = Channels(rate, longest) if fields.multichannel else Recording(rate, longest)
    resources.enter_context(recording)
    origin = await _decode(front, fields, recording)
    await free_upload()  # it may wait for long, and its samples are room enough
    record.stages["decode"] = time.monotonic() - began
    record.audio_seconds = origin.seconds

    def cut_recording_of(one: Recording) -> CutRecording:
        return CutRecording(one, _rule(one, asked, longest), front.detector, front.cut_threads)

    async def write(phrases: Sequence[str]) -> list[str]:
        language = (await asked.surely_told(phrases)).language
        return await front.grammars.write(phrases, language) if language in GRAMMARS else list(phrases)

    def answers_of(cut_recording: CutRecording) -> AsyncGenerator[Answer, None]:
        caller = record.caller or record.request_id
        answers = front.recordings.transcribe(
            cut_recording, caller, asked.lane, asked.prompt, is_background=is_background
        )
        return answers_in_written_form(answers, write) if fields.format == "written" else answers

    heartbeat = front.settings.heartbeat_seconds
    patience = heartbeat if fields.stream else None
    if isinstance(recording, Channels):
        cut_recordings = [(cut_recording_of(one), recording.is_silent(number)) for number, one in enumerate(recording)]
        channels = [
            Channel(number, cut_recording, None if is_silent else answers_of(cut_recording))
            for number, (cut_recording, is_silent) in enumerate(cut_recordings, 1)
        ]
        record.audio_seconds = sum(channel.seconds for channel in channels)
        with front.access.allowance(record.caller).audio(record.audio_seconds):
            conversation = await Conversation.begin(front.metrics, record, asked, origin, channels, patience)
            resources.push_async_callback(conversation.aclose)
            return conversation.stream(heartbeat) if fields.stream else await conversation.response()
    cut_recording = cut_recording_of(recording)
    answers = answers_of(cut_recording)
    resources.push_async_callback(answers.aclose)
    with front.access.allowance(record.caller).audio(origin.seconds):
        hearing = await Hearing.begin(front.metrics, record, asked, origin, answers, cut_recording, patience)
        resources.push_async_callback(hearing.aclose)
        return hearing.stream(heartbeat) if fields.stream else await hearing.response()


def _rule(recording: Recording, asked: Asked, longest: float) -> SegmentRule | None:
    """Where to cut a recording; None where it is one utterance."""
    # A recording that fits is taken whole; of a longer one, the model hears pieces as it was trained on best.
    piece = min(longest, asked.served.info.get("piece_seconds") or longest)
    if asked.fields.chunking_strategy is not None:
        return asked.fields.chunking_strategy.rule(piece)
    return SegmentRule(piece) if recording.seconds > longest else None


class _ClientLeftError(Exception):
    """Nobody wants what is being decoded."""


async def _decode(front: Front, fields: schemas.TranscriptionForm, recording: Recording | Channels) -> Origin:
    is_wanted = True

    def take(samples: bytes | memoryview, channel: int) -> None:
        # What is nearly done is let be: to end it may cost a decoding process, and another file the time to start one.
        if not is_wanted and recording.seconds > front.settings.max_utterance_seconds:
            raise _ClientLeftError
        if isinstance(recording, Channels):
            recording.append(samples, channel)
        else:
            recording.append(samples)

    def leave() -> None:
        nonlocal is_wanted
        is_wanted = False

    decode = partial(
        front.decode_pool.decode_into,
        take,
        fields.file.file,
        rate=recording.rate,
        limits=front.settings.audio_limits,
        raw=RawForm.of_media_type(fields.file.content_type or ""),
        by_channel=fields.multichannel,
    )
    try:
        with front.intake.decoding():
            return await in_thread(front.decode_threads, decode, leave)
    except AudioError as error:
        front.metrics.audio_decode.labels("unknown", error.code).inc()
        raise
    except NoChildError as error:
        log.warning("no decoding process", extra={"reason": str(error)})
        raise NoDecodeProcessError("The service cannot decode this recording now.", _NO_PROCESS_SECONDS) from None
    except (StorageFullError, OSError):
        raise OverloadedError("The service has no room for this recording now.", retry_after=60) from None
