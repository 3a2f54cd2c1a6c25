"""POST /v1/audio/transcriptions and /v1/audio/translations: receive, decode, wait for the transcript, render."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData
from starlette.types import Receive

from audio.channels import Channels
from audio.origin import Origin
from audio.recording import Recording
from service.dispatch.admission import Permit
from service.dispatch.identification import Identification
from service.http import schemas
from service.http.authorization import KEY, NOT_AUTHORIZED
from service.http.bodies import receive
from service.http.conversation import Channel, Conversation, in_order
from service.http.decoding import decode
from service.http.disconnect import unless_client_leaves
from service.http.events import EventStream
from service.http.fetching import fetch
from service.http.front import Front
from service.http.loaded_model import LoadedModel
from service.http.parts import Parts
from service.http.prompts import into_english, prompt_of
from service.http.reply import Reply, TranscriptionOptions
from service.http.telemetry import Record
from service.http.transcribing import answers, cut
from service.http.upload import Upload, announced_bytes
from service.http.written_form import check_written_form
from transcripts.prompt import ENGLISH
from transcripts.spoken_language import possible_languages
from transcripts.subtitles import CueSize

router = APIRouter(prefix="/v1/audio", dependencies=[KEY], responses=NOT_AUTHORIZED)

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorBody, "description": meaning}
    for status, meaning in {
        400: "The request or its audio is wrong.",
        404: "No such model, or one that does not translate.",
        408: "The body came too slowly.",
        413: "The body is too large.",
        429: "The key has used up what it may have at once, or in a minute; see Retry-After.",
        500: "The server failed on this request.",
        503: "No transcript now; the code says why. See Retry-After.",
    }.items()
}
_TRANSCRIPT: dict[str, Any] = {
    "model": schemas.Transcription | schemas.VerboseTranscription,
    "content": {kind: {} for kind in ("text/plain", "text/event-stream")},
}
_REQUEST_BODY = schemas.request_body(schemas.form_schema())


@router.post(
    "/transcriptions",
    response_model=None,
    response_description="The transcript, in the format asked for.",
    responses={200: _TRANSCRIPT, **_ERRORS},
    openapi_extra=_REQUEST_BODY,
)
async def transcribe(request: Request) -> Response:
    """Turn a recording into text."""
    return await _serve(request, is_translation=False)


@router.post(
    "/translations",
    response_model=None,
    response_description="The transcript in English, in the format asked for.",
    responses={200: _TRANSCRIPT, **_ERRORS},
    openapi_extra=_REQUEST_BODY,
)
async def translate(request: Request) -> Response:
    """Turn a recording into English text, if the model translates; `language` is the spoken language."""
    return await _serve(request, is_translation=True)


async def _serve(request: Request, *, is_translation: bool) -> Response:
    front: Front = request.app.state.front
    record: Record = request.state.record
    async with AsyncExitStack() as resources:
        form, permit = await receive_form(request, resources)
        record.stages["receive"] = time.monotonic() - record.began
        options = await parse_options(
            front, record, form, resources, is_translation=is_translation, receive=request.receive
        )
        count_ignored_fields(front, form)

        async def free_upload() -> None:
            await form.close()
            permit.free()

        answering = answer(front, record, options, resources, free_upload)
        response = await unless_client_leaves(request.receive, answering)
        response.headers["server-timing"] = record.server_timing()
        response.headers["openai-processing-ms"] = str(round(1000 * (time.monotonic() - record.began)))
        if isinstance(response, EventStream):
            response.resources = resources.pop_all()
        return response


async def receive_form(
    request: Request, resources: AsyncExitStack, *, is_background: bool = False
) -> tuple[FormData, Permit]:
    """Admit a request by gate 1, and receive its form.

    Args:
        request: the request.
        resources: keep it admitted, and its file open, until they are closed.
        is_background: whether it is a job's.

    Raises:
        RequestError: if the form is not valid, or its key's limits are used up.
        RefusedError: if there is no room.
        ClientDisconnect: if the client left.
    """
    front: Front = request.app.state.front
    record: Record = request.state.record
    settings, core = front.settings, front.core
    size = announced_bytes(request.headers, settings.max_upload_bytes)
    record.allowance = front.access.allowance(record.caller)
    await resources.enter_async_context(core.use_key(record.allowance))
    permit = resources.enter_context(core.gate.enter(size, is_background=is_background))
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
        resources.push_async_callback(body.form.close)  # deletes its spooled file
        if body.url is not None:
            fields = schemas.TranscriptionForm.parse(body.form)  # check the fields before fetching
            await unless_client_leaves(
                request.receive, fetch(front.outbound, body.url, fields.file, upload, record.caller)
            )
    finally:
        record.body_bytes = permit.stored_bytes
    return body.form, permit


async def parse_options(
    front: Front,
    record: Record,
    form: FormData,
    resources: AsyncExitStack,
    *,
    is_translation: bool,
    receive: Receive | None = None,
) -> TranscriptionOptions:
    """Validate a form, and find its model.

    Args:
        front: the service.
        record: gets the id of the model.
        form: the form.
        resources: keep the model loaded until they are closed.
        is_translation: whether the text must be English.
        receive: the ASGI channel, to notice a client that leaves while the model is loaded on demand; None for a job.

    Raises:
        RequestError: if a field is wrong, or the model cannot do what it asks for, or cannot be loaded.
        ModelNotReadyError: if the model, or the language identifier, is not loaded yet.
    """
    fields = schemas.TranscriptionForm.parse(form)
    name = fields.model
    if name is not None and front.core.loads_on_demand and not front.core.catalog.find_ready(name):
        model = await _loaded(front, record, name, resources, receive)
    else:
        model = front.ready_model(name)
        model = await front.hold_model(model.id, front.settings.request_timeout_seconds, resources)
    record.model = model.id
    fields = model.narrowed(fields)
    identification = _identification(front, model, fields, is_translation=is_translation)
    identifies = identification is not None
    if is_translation:
        model.check_translation()
        fields = into_english(fields, model.languages, identifies=identifies)
    settings = front.settings
    size = CueSize(settings.subtitle_characters, settings.subtitle_lines, settings.subtitle_seconds)
    prompt = prompt_of(fields, model.info, None if identifies else model.assumed_language(fields))
    lane = model.lane(fields.decoder)
    options = TranscriptionOptions(fields, model, lane, prompt, front.cut_threads, size, identification)
    if fields.format == "written":
        check_written_form(front.grammars, options.text_language.language)
    return options


def count_ignored_fields(front: Front, form: FormData) -> None:
    """Count the ignored fields of a valid request; apart from parsing, which may happen several times."""
    for name in schemas.ignored_fields(form):
        front.metrics.ignored_fields.labels(name).inc()


def _identification(
    front: Front, model: LoadedModel, fields: schemas.TranscriptionForm, *, is_translation: bool
) -> Identification | None:
    """Return how to identify the spoken language; None if it is named, not needed, or no identifier knows it."""
    if fields.language or not model.info.takes_prompts or len(model.languages) == 1:
        return None
    target = ENGLISH if is_translation else fields.target_language
    possible = possible_languages(fields.languages or model.languages, target)
    return front.identification(possible, is_exhaustive=bool(fields.languages))


async def _loaded(
    front: Front, record: Record, name: str, resources: AsyncExitStack, receive: Receive | None
) -> LoadedModel:
    """Return a model on demand, held by ``resources``, after loading it."""
    began = time.monotonic()
    try:
        loading = front.hold_model(name, front.settings.request_timeout_seconds, resources)
        return await (unless_client_leaves(receive, loading) if receive else loading)
    finally:
        record.stages["load"] = time.monotonic() - began


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

    Args:
        front: the service.
        record: gets the times of stages.
        options: the validated request.
        resources: hold what the answer needs until they are closed.
        free_upload: called when the file is decoded.
        is_background: whether it is a job's.

    Raises:
        RequestError: if its key's limit on audio is used up.
        AudioError: if the file cannot be decoded.
        DispatchError: if it gets no transcript.
    """
    began, fields = time.monotonic(), options.fields
    allowance = front.access.allowance(record.caller)
    if is_background:
        allowance.check_audio()  # before it is decoded for nothing
    origin, recording = await _decoded(front, options, resources, is_in_memory=not is_background)
    await free_upload()  # the request may wait long, and its samples take memory already
    record.stages["decode"] = time.monotonic() - began
    record.audio_seconds = origin.seconds
    if is_background:
        await allowance.until_audio()  # others may have used it up; a job that runs again is decoded twice
    answers_of = partial(answers, front, record, options, is_background=is_background)
    heartbeat = front.settings.heartbeat_seconds
    patience = heartbeat if fields.stream else None
    if isinstance(recording, Channels):
        cut_recordings = [
            (cut(front, options, one), recording.is_silent(number)) for number, one in enumerate(recording)
        ]
        channels = [
            Channel(number, cut_recording, None if is_silent else answers_of(cut_recording))
            for number, (cut_recording, is_silent) in enumerate(cut_recordings, 1)
        ]
        record.audio_seconds = sum(channel.seconds for channel in channels)
        async with front.core.use_audio(allowance, record.audio_seconds):
            turns = await Parts.begin(in_order([channel.turns() for channel in channels]), record, patience)
            resources.push_async_callback(turns.aclose)
            conversation = Conversation(front.metrics, record, options, origin, channels, turns)
            return conversation.stream(heartbeat) if fields.stream else await conversation.response()
    cut_recording = cut(front, options, recording)
    async with front.core.use_audio(allowance, origin.seconds):
        parts = await Parts.begin(answers_of(cut_recording), record, patience)
        resources.push_async_callback(parts.aclose)
        reply = Reply(front.metrics, record, options, origin, parts, cut_recording)
        return reply.stream(heartbeat) if fields.stream else await reply.response()


async def _decoded(
    front: Front, options: TranscriptionOptions, resources: AsyncExitStack, *, is_in_memory: bool
) -> tuple[Origin, Recording | Channels]:
    rate, longest = options.model.ready.sample_rate, front.settings.max_utterance_seconds
    if options.fields.multichannel:
        channels = resources.enter_context(Channels(rate, longest))
        return await decode(front, options.fields, channels, channels.append, is_in_memory=is_in_memory), channels
    recording = resources.enter_context(Recording(rate, longest))

    def append(samples: bytes | memoryview, _channel: int) -> None:
        recording.append(samples)

    return await decode(front, options.fields, recording, append, is_in_memory=is_in_memory), recording
