"""POST /v1/audio/transcriptions and /v1/audio/translations: receive, decode, wait for the transcript, render."""

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from service.dispatch.admission import Permit
from service.http.keys.access import NEEDS_KEY
from service.http.transcription.answer import answer
from service.http.transcription.form import TranscriptionForm, form_schema, request_body
from service.http.transcription.options import parse_options
from service.http.transcription.schemas import DiarizedTranscription, Transcription, VerboseTranscription
from service.http.transcription.stream import EventStream
from service.http.wire.bodies import receive
from service.http.wire.connections import BODY_SECONDS, client_of
from service.http.wire.disconnect import unless_client_leaves
from service.http.wire.fetching import fetch
from service.http.wire.upload import Upload, announced_bytes

if TYPE_CHECKING:
    from service.http.front import Front
    from service.http.telemetry import Record

router = APIRouter(prefix="/v1/audio")

_TRANSCRIPT: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Transcription | VerboseTranscription | DiarizedTranscription,
        "content": {kind: {} for kind in ("text/plain", "text/event-stream")},
    }
}
_REQUEST = request_body(form_schema()) | NEEDS_KEY


@router.post(
    "/transcriptions",
    response_model=None,
    response_description="The transcript, in the format asked for.",
    responses=_TRANSCRIPT,
    openapi_extra=_REQUEST,
)
async def transcribe(request: Request) -> Response:
    """Turn a recording into text."""
    return await _serve(request, is_translation=False)


@router.post(
    "/translations",
    response_model=None,
    response_description="The transcript in English, in the format asked for.",
    responses=_TRANSCRIPT,
    openapi_extra=_REQUEST,
)
async def translate(request: Request) -> Response:
    """Turn a recording into English text, if the model translates; `language` is the spoken language."""
    return await _serve(request, is_translation=True)


async def _serve(request: Request, *, is_translation: bool) -> Response:
    front: Front = request.app.state.front
    record: Record = request.state.record
    record.caller = front.access.authorize(request.headers)
    async with AsyncExitStack() as resources:
        form, permit = await receive_form(request, resources)
        record.stages["receive"] = time.monotonic() - record.began
        options = await parse_options(
            front, record, form, resources, is_translation=is_translation, receive=request.receive
        )

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
    """Admit a request by gate 1, and receive its form; it stays admitted until the resources are closed.

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
    client = client_of(request, record.caller)
    permit = resources.enter_context(core.gate.enter(size, client, is_background=is_background))
    upload = Upload(
        request.receive,
        permit,
        limit=settings.max_upload_bytes,
        silence_seconds=settings.receive_timeout_seconds,
        total_seconds=BODY_SECONDS,
    )
    await front.intake.turn()
    try:
        form, url = await receive(upload, request.headers, request.query_params)
        resources.push_async_callback(form.close)  # deletes its spooled file
        if url is not None:
            fields = TranscriptionForm.parse(form)  # check the fields before fetching
            await unless_client_leaves(request.receive, fetch(front.outbound, url, fields.file, upload, client))
    finally:
        record.body_bytes = permit.stored_bytes
    return form, permit
