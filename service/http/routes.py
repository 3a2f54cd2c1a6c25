"""The routes: parse, ask the dispatcher, render."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from audio.decode import Audio, decode
from audio.errors import AudioError
from service.dispatch.dispatcher import Dispatcher
from service.http import schemas
from service.http.access import Access
from service.http.errors import RequestError
from service.http.formats import render
from service.http.telemetry import Record
from service.http.upload import Upload, announced_bytes
from service.metrics import Metrics
from service.settings import Settings

T = TypeVar("T")


async def _authorize(request: Request) -> None:
    request.state.record.caller = request.app.state.front.access.authorize(request.headers)


# The API needs a key where keys are set; probes and metrics never do, and are not for the public.
api = APIRouter(prefix="/v1", dependencies=[Depends(_authorize)])
operations = APIRouter()


@dataclass(frozen=True, slots=True)
class Front:
    """What the routes work with; one per service, found as `request.app.state.front`.

    Attributes:
        decoders: Threads that decode uploads: nothing that takes a millisecond runs on the event loop.
        started: Unix time, the `created` of the model.
        access: The API keys.
    """

    settings: Settings
    dispatcher: Dispatcher
    metrics: Metrics
    decoders: ThreadPoolExecutor
    started: int
    access: Access

    @property
    def model_id(self) -> str:
        """The checkpoint's file name without its ending."""
        return Path(self.settings.model).stem

    def check_model(self, name: str) -> None:
        """Accept the model's id and its aliases.

        Raises:
            RequestError: For any other name.
        """
        if name != self.model_id and name not in self.settings.model_aliases:
            raise RequestError(
                f"The model {name!r} does not exist; this service has {self.model_id!r}.",
                code="model_not_found",
                param="model",
                status=404,
            )


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorBody, "description": meaning}
    for status, meaning in {
        400: "The request or its audio is wrong.",
        404: "No such model.",
        408: "The body came too slowly.",
        413: "The body is too large.",
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


@api.post(
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
    with front.dispatcher.admission.enter(size) as permit:
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
            record.stages["receive"] = time.monotonic() - record.began
            return await _unless_client_leaves(request.receive, _answer(front, record, fields))


async def _answer(front: Front, record: Record, fields: schemas.TranscriptionForm) -> Response:
    began = time.monotonic()
    audio = await _decode(front, fields)
    record.stages["decode"] = time.monotonic() - began
    record.audio_seconds = audio.seconds
    answer = await front.dispatcher.transcribe(audio.samples, audio.seconds)
    record.stages["queue"] = answer.queue_seconds
    record.stages["infer"] = answer.infer_seconds
    _count(front.metrics, audio, fields.file.size or 0, len(answer.transcript.words))
    response = render(
        answer.transcript,
        seconds=audio.seconds,
        response_format=fields.response_format,
        granularities=fields.timestamp_granularities,
        language=_language(front.dispatcher),
    )
    response.headers["server-timing"] = record.server_timing()
    response.headers["openai-processing-ms"] = str(round(1000 * (time.monotonic() - record.began)))
    return response


async def _decode(front: Front, fields: schemas.TranscriptionForm) -> Audio:
    model = front.dispatcher.model
    assert model is not None  # gate 1 refuses until an engine has been ready
    file, limits = fields.file.file, front.settings.audio_limits
    work = asyncio.get_running_loop().run_in_executor(
        front.decoders, lambda: decode(file, rate=model.sample_rate, limits=limits)
    )
    try:
        return await _finish_even_if_cancelled(work)
    except AudioError as error:
        front.metrics.audio_decode.labels("unknown", error.code).inc()
        raise


async def _finish_even_if_cancelled(work: "asyncio.Future[T]") -> T:
    """Let a thread finish before its file is closed under it; it is bounded by the limits of the audio."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise


async def _unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and cancel it when the client closes the connection.

    Raises:
        ClientDisconnect: If the client left first.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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


def _language(dispatcher: Dispatcher) -> str | None:
    """The model's language, where it has exactly one and says so."""
    languages = (dispatcher.model.info.get("languages") if dispatcher.model else None) or []
    return languages[0] if len(languages) == 1 else None


@api.get("/models")
async def list_models(request: Request) -> schemas.ModelList:
    """List the models that can be asked for."""
    front: Front = request.app.state.front
    return schemas.ModelList(data=[_card(front)])


@api.get("/models/{name:path}", responses={404: _ERRORS[404]})
async def get_model(request: Request, name: str) -> schemas.ModelCard:
    """Describe one model."""
    front: Front = request.app.state.front
    front.check_model(name)
    return _card(front)


def _card(front: Front) -> schemas.ModelCard:
    return schemas.ModelCard(id=front.model_id, created=front.started, owned_by="steno")


@operations.get("/healthz")
async def healthz() -> JSONResponse:
    """Tell that the front process lives, whatever the engine does."""
    return JSONResponse({"status": "ok"})


@operations.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """Tell whether new work is accepted and an engine is ready for it; a full queue does not change that."""
    dispatcher = request.app.state.front.dispatcher
    if dispatcher.is_ready:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "draining" if dispatcher.admission.is_draining else "loading"}, 503)


@operations.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Export everything that is measured, for Prometheus."""
    front: Front = request.app.state.front
    front.dispatcher.update_gauges()
    exposition = await asyncio.to_thread(front.metrics.exposition)  # some milliseconds, too long for the event loop
    return Response(exposition, media_type="text/plain; version=0.0.4; charset=utf-8")
