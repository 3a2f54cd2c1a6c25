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
from audio.decode import Origin, decode_into
from audio.errors import AudioError
from audio.pcm import is_quick
from audio.pool import NoChildError
from audio.raw import RawFormat
from audio.recording import Recording, StorageFullError
from audio.segment.segmenter import SegmentRule
from models.prompt import ENGLISH
from models.spoken_language import possible_languages
from service.dispatch.admission import Permit
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import NoDecodeProcessError, OverloadedError
from service.dispatch.identification import Identification
from service.grammars import LANGUAGES as GRAMMARS
from service.http import schemas
from service.http.bodies import receive
from service.http.conversation import Channel, Conversation, in_order
from service.http.disconnect import unless_client_leaves
from service.http.events import EventStream
from service.http.fetching import fetch
from service.http.front import Front
from service.http.loaded_model import LoadedModel
from service.http.parts import Parts
from service.http.prompts import into_english, prompt_of
from service.http.reply import Reply, TranscriptionOptions
from service.http.subtitles import CueSize
from service.http.telemetry import Record
from service.http.upload import Upload, announced_bytes
from service.http.written_form import answers_in_written_form, check_written_form
from service.threads import in_thread

log = logging.getLogger("steno.http")

router = APIRouter()

_NO_PROCESS_SECONDS = 5  # Retry-After when no decoding process can be started

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
_REQUEST_BODY = schemas.request_body(schemas.form_schema())


@router.post(
    "/audio/transcriptions",
    response_model=None,
    response_description="The transcript, in the format asked for.",
    responses={200: _TRANSCRIPT, **_ERRORS},
    openapi_extra=_REQUEST_BODY,
)
async def transcribe(request: Request) -> Response:
    """Turn a recording into text."""
    return await _serve(request, is_translation=False)


@router.post(
    "/audio/translations",
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

        async def free_upload() -> None:
            await form.close()
            permit.free()

        response = await unless_client_leaves(request.receive, answer(front, record, options, resources, free_upload))
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
            await unless_client_leaves(request.receive, fetch(front.outbound, body.url, fields.file, upload))
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
        RequestError: if a field is wrong, or the model cannot do what it asks for.
        ModelNotReadyError: if the model is not loaded yet.
    """
    fields = schemas.TranscriptionForm.parse(form)
    model = await _loaded(front, record, fields.model, resources, receive)
    record.model = model.id
    fields = model.narrowed(fields)
    identification = _identification(front, model, fields, is_translation=is_translation)
    identifies = identification is not None
    if is_translation:
        model.check_translation()
        fields = into_english(fields, model.languages, identifies=identifies)
    for name in schemas.ignored_fields(form):
        front.metrics.ignored_fields.labels(name).inc()
    settings = front.settings
    size = CueSize(settings.subtitle_characters, settings.subtitle_lines, settings.subtitle_seconds)
    prompt = prompt_of(fields, model.info, identifies=identifies)
    lane = model.lane(fields.decoder)
    options = TranscriptionOptions(fields, model, lane, prompt, front.cut_threads, size, identification)
    if fields.format == "written":
        check_written_form(front.grammars, options.text_language.language)
    return options


def _identification(
    front: Front, model: LoadedModel, fields: schemas.TranscriptionForm, *, is_translation: bool
) -> Identification | None:
    """Return how the spoken language is identified; None if it is named, or the model does not need it."""
    if fields.language or not model.info.takes_prompts or len(model.languages) == 1:
        return None
    target = ENGLISH if is_translation else fields.target_language
    possible = possible_languages(fields.languages or model.languages, target)
    return front.identification(possible, is_exhaustive=bool(fields.languages))


async def _loaded(
    front: Front, record: Record, name: str | None, resources: AsyncExitStack, receive: Receive | None
) -> LoadedModel:
    """Return the model, held by ``resources``, after loading it on demand if needed."""
    if name is None or not front.core.loads_on_demand or front.core.catalog.find_ready(name):
        model = front.ready_model(name)
        resources.enter_context(model.entry.use())
        return model
    began = time.monotonic()
    try:
        loading = front.get_or_load(name, front.settings.request_timeout_seconds, resources)
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
    began, fields, longest = time.monotonic(), options.fields, front.settings.max_utterance_seconds
    rate = options.model.ready.sample_rate
    recording: Recording | Channels = Channels(rate, longest) if fields.multichannel else Recording(rate, longest)
    resources.enter_context(recording)
    allowance = front.access.allowance(record.caller)
    if is_background:
        allowance.check_audio()  # before it is decoded for nothing
    origin = await _decode(front, fields, recording, is_in_memory=not is_background)
    await free_upload()  # it may wait long, and its samples take memory already
    record.stages["decode"] = time.monotonic() - began
    record.audio_seconds = origin.seconds
    if is_background:
        await allowance.until_audio()  # if others used it up meanwhile: no decoding a second time

    def cut_recording_of(one: Recording) -> CutRecording:
        return CutRecording(one, _rule(one, options, longest), front.detector, front.cut_threads)

    async def write(part: Answer, phrases: Sequence[str]) -> list[str]:
        language = options.text_language.language
        if language is None and part.identified:
            language = part.identified.part.language
        elif language is None:
            language = (await options.detect_language(phrases)).language
        return await front.grammars.write(phrases, language) if language in GRAMMARS else list(phrases)

    def answers_of(cut_recording: CutRecording) -> AsyncGenerator[Answer, None]:
        caller = record.caller or record.request_id
        answers = front.recordings.transcribe(
            *(cut_recording, caller, options.lane, options.prompt),
            identification=options.identification,
            waited_seconds=record.stages.get("load", 0.0),
            is_background=is_background,
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
        async with front.core.use_audio(allowance, record.audio_seconds):
            turns = await Parts.begin(in_order([channel.turns() for channel in channels]), record, patience)
            resources.push_async_callback(turns.aclose)
            conversation = Conversation(front.metrics, record, options, origin, channels, turns)
            return conversation.stream(heartbeat) if fields.stream else await conversation.response()
    cut_recording = cut_recording_of(recording)
    async with front.core.use_audio(allowance, origin.seconds):
        parts = await Parts.begin(answers_of(cut_recording), record, patience)
        resources.push_async_callback(parts.aclose)
        reply = Reply(front.metrics, record, options, origin, parts, cut_recording)
        return reply.stream(heartbeat) if fields.stream else await reply.response()


def _rule(recording: Recording, options: TranscriptionOptions, longest: float) -> SegmentRule | None:
    """Return where to cut a recording; None if it is one utterance."""
    # A recording that fits is not cut; a longer one is cut into parts of the length that suits the model.
    piece = min(longest, options.model.info.piece_seconds or longest)
    if options.fields.chunking_strategy is not None:
        return options.fields.chunking_strategy.rule(piece)
    return SegmentRule(piece) if recording.seconds > longest else None


class _ClientLeftError(Exception):
    """The client left while its upload was decoded."""


async def _decode(
    front: Front, fields: schemas.TranscriptionForm, recording: Recording | Channels, *, is_in_memory: bool
) -> Origin:
    is_wanted = True

    def take(samples: bytes | memoryview, channel: int) -> None:
        # A short recording is decoded to its end: to stop it may cost a decoding process, and starting one takes time.
        if not is_wanted and recording.seconds > front.settings.max_utterance_seconds:
            raise _ClientLeftError
        if isinstance(recording, Channels):
            recording.append(samples, channel)
        else:
            recording.append(samples)

    def leave() -> None:
        nonlocal is_wanted
        is_wanted = False

    file, raw = fields.file.file, RawFormat.of_media_type(fields.file.content_type or "")
    limits, by_channel = front.settings.audio_limits, fields.multichannel
    try:
        if is_in_memory and raw is None and is_quick(file, recording.rate):
            return decode_into(take, file, rate=recording.rate, limits=limits, by_channel=by_channel)
        decode = partial(
            front.decode_pool.decode_into,
            take,
            file,
            rate=recording.rate,
            limits=limits,
            raw=raw,
            by_channel=by_channel,
        )
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
