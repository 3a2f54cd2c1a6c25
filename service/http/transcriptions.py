"""POST /v1/audio/transcriptions: receive, decode, wait for the transcript, render."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from audio.decode import Audio
from audio.errors import AudioError
from audio.raw import RawForm
from service.engine.protocol import Transcript
from service.http import schemas
from service.http.disconnect import finish_even_if_cancelled, unless_client_leaves
from service.http.events import event_stream
from service.http.formats import render
from service.http.front import Front
from service.http.telemetry import Record
from service.http.upload import Upload, announced_bytes
from service.metrics import Metrics

router = APIRouter()

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorBody, "description": meaning}
    for status, meaning in {
        400: "The request or its audio is wrong.",
        404: "No such model.",
        408: "The body came too slowly.",
        413: "The body is too large.",
        429: "The key has all the requests under way that it may have; see Retry-After.",
        500: "The server failed on this request.",
        503: "Overloaded, draining or loading; see Retry-After.",
    }.items()
}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": schemas.TranscriptionForm.model_json_schema() | {"required": ["file", "model"]}
            }
        },
    }
}


@router.post(
    "/audio/transcriptions",
    response_model=None,
    responses={200: {"model": schemas.Transcription | schemas.VerboseTranscription}, **_ERRORS},
    openapi_extra=_FORM,
)
async def transcribe(request: Request) -> Response:
    """Turn a recording into text."""
    front: Front = request.app.state.front
    record: Record = request.state.record
    settings = front.settings
    size = announced_bytes(request.headers, settings.max_upload_bytes)
    admission = front.dispatcher.admission
    with front.access.enter(record.caller, admission.retry_after), admission.enter(size) as permit:
        upload = Upload(
            request.receive,
            permit,
            limit=settings.max_upload_bytes,
            silence_seconds=settings.receive_timeout_seconds,
            total_seconds=settings.max_receive_seconds,
        )
        try:
            form = await upload.form(request.headers)
        finally:
            record.body_bytes = permit.stored_bytes
        async with _closing(form):
            fields = schemas.TranscriptionForm.parse(form)
            front.check_model(fields.model)
            front.check_language(fields.language)
            record.stages["receive"] = time.monotonic() - record.began
            return await unless_client_leaves(request.receive, _answer(front, record, fields))


async def _answer(front: Front, record: Record, fields: schemas.TranscriptionForm) -> Response:
    began = time.monotonic()
    audio = await _decode(front, fields)
    record.stages["decode"] = time.monotonic() - began
    record.audio_seconds = audio.seconds
    answer = await front.dispatcher.transcribe(audio.samples)
    record.stages["queue"] = answer.queue_seconds
    record.stages["infer"] = answer.infer_seconds
    _count(front.metrics, audio, fields.file.size or 0, len(answer.transcript.words))
    response = _response(answer.transcript, audio.seconds, fields, front)
    response.headers["server-timing"] = record.server_timing()
    response.headers["openai-processing-ms"] = str(round(1000 * (time.monotonic() - record.began)))
    return response


def _response(transcript: Transcript, seconds: float, fields: schemas.TranscriptionForm, front: Front) -> Response:
    model = front.dispatcher.model
    assert model is not None
    spellings = model.spellings if "logprobs" in fields.include else None
    if fields.stream:
        return event_stream(transcript, seconds, spellings)
    return render(
        transcript,
        seconds=seconds,
        response_format=fields.response_format,
        granularities=fields.timestamp_granularities,
        languages=front.languages,
        spellings=spellings,
    )


async def _decode(front: Front, fields: schemas.TranscriptionForm) -> Audio:
    model = front.dispatcher.model
    assert model is not None  # gate 1 refuses until an engine has been ready
    decode = partial(
        front.decode_pool.decode,
        fields.file.file,
        rate=model.sample_rate,
        limits=front.settings.audio_limits,
        raw=RawForm.of_media_type(fields.file.content_type or ""),
    )
    work = asyncio.get_running_loop().run_in_executor(front.decoders, decode)
    try:
        return await finish_even_if_cancelled(work)
    except AudioError as error:
        front.metrics.audio_decode.labels("unknown", error.code).inc()
        raise


@asynccontextmanager
async def _closing(form: FormData) -> AsyncIterator[None]:
    """Remove the form's spooled files, however the request ends."""
    try:
        yield
    finally:
        await form.close()


def _count(metrics: Metrics, audio: Audio, size: int, words: int) -> None:
    metrics.audio_duration.observe(audio.seconds)
    metrics.audio_bytes.labels(audio.container).inc(size)
    metrics.audio_decode.labels(audio.container, "truncated" if audio.truncated else "ok").inc()
    metrics.words.inc(words)
    if not words:
        metrics.empty_transcripts.inc()
