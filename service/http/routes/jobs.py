"""Routes of jobs: transcriptions that need no open connection.

`POST /v1/audio/jobs` takes the form of a transcription and answers at once. A job's result is byte for byte what
`POST /v1/audio/transcriptions` or `translations` would have answered.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, Headers, UploadFile

from audio.errors import AudioError
from service.dispatch.errors import DispatchError, DrainingError, EngineLostError, OverloadedError, RefusedError
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response, missing, unsupported
from service.http.front import Front
from service.http.keys.access import KEY
from service.http.routes.transcriptions import receive_form
from service.http.telemetry import Record
from service.http.transcription.answer import answer
from service.http.transcription.form import fault_of, form_schema, request_body
from service.http.transcription.options import parse_options
from service.http.wire.connections import client_of
from service.jobs.job import Delivery, Job, JobResult
from service.jobs.jobs import Jobs, LaterError
from service.jobs.store import CallerFullError, StoreFullError
from service.jobs.webhook import check_secret
from service.outbound import ForbiddenUrlError
from service.tracing import Traceparent, current, under

log = logging.getLogger("steno.http")

router = APIRouter(prefix="/v1/audio/jobs", dependencies=[KEY])

_FULL_SECONDS = 60  # Retry-After when there is no room for another job
_POLL_SECONDS = 5  # Retry-After until a job is finished


class JobForm(BaseModel):
    """Fields of a job's form in addition to those of a transcription."""

    task: Annotated[
        Literal["transcribe", "translate"], Field(description="translate: into English, as /v1/audio/translations.")
    ] = "transcribe"
    webhook: Annotated[
        str | None,
        Field(description="URL that gets a signed POST when the job is completed or failed (Standard Webhooks)."),
    ] = None
    webhook_secret: Annotated[
        str | None,
        Field(
            description="Secret that signs the webhook: whsec_ and base64, or any text; 16 to 512 characters, besides "
            "whsec_."
        ),
    ] = None

    @classmethod
    def parse(cls, form: FormData) -> "JobForm":
        """Read the fields.

        Raises:
            RequestError: if a field is wrong; the error names it.
        """
        try:
            return cls.model_validate({name: form[name] for name in cls.model_fields if form.get(name, "") != ""})
        except ValidationError as error:
            raise fault_of(error) from None


class JobPage(BaseModel):
    """Query parameters of a list of jobs."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100, description="Most jobs to list.")] = 20
    after: Annotated[str, Field(description="Id of a job: only older jobs are listed. Pass last_id to go on.")] = ""


_OF_TRANSCRIPTION = form_schema()
_FIELDS = {**_OF_TRANSCRIPTION["properties"], **JobForm.model_json_schema()["properties"]}
_REQUEST_BODY = request_body(
    _OF_TRANSCRIPTION | {"properties": {name: field for name, field in _FIELDS.items() if name != "stream"}}
)


@router.post(
    "",
    status_code=202,
    response_description="The job; it is on disk, and outlives restarts.",
    openapi_extra=_REQUEST_BODY,
)
async def create_job(request: Request) -> Response:
    """Accept a recording, to be transcribed in the background."""
    front: Front = request.app.state.front
    record: Record = request.state.record
    jobs = _jobs(request)
    async with AsyncExitStack() as resources:
        with _room():  # before the body is received
            await jobs.check_room(record.caller)
        form, _ = await receive_form(request, resources, is_background=True)
        job_form = JobForm.parse(form)
        delivery = _delivery(jobs, job_form, front.settings.webhook_secret, client_of(request, record.caller))
        rest = FormData([(name, value) for name, value in form.multi_items() if name not in JobForm.model_fields])
        options = await parse_options(
            front, record, rest, resources, is_translation=job_form.task == "translate", receive=request.receive
        )
        if options.fields.stream:
            raise unsupported("stream", "A job is not streamed.")
        record.stages["receive"] = time.monotonic() - record.began
        file: UploadFile = options.fields.file
        job = Job(
            *(f"job_{uuid.uuid4().hex}", record.caller, "queued", options.model.id),
            _encoded_request(rest, file, options.model.id, job_form.task),
            *(file.size or 0, time.time()),
            delivery=delivery,
            traceparent=str(trace.traceparent) if (trace := current()) else None,
        )
        with _room():
            await jobs.add(job, file.file)
        # Relative to this request's URL, so that it is right behind a proxy that adds a prefix.
        return JSONResponse(job.described(), 202, {"location": f"jobs/{job.id}"})


@router.get("")
async def list_jobs(request: Request, page: Annotated[JobPage, Query()]) -> JSONResponse:
    """List the jobs of the key, the newest first."""
    after = (await _found(request, page.after)).id if page.after else None
    found = await _jobs(request).listed(request.state.record.caller, after=after, limit=page.limit + 1)
    listed = found[: page.limit]
    ends = {"first_id": listed[0].id, "last_id": listed[-1].id} if listed else {"first_id": None, "last_id": None}
    cards = [job.described() for job in listed]
    return JSONResponse({"object": "list", "data": cards, **ends, "has_more": len(found) > page.limit})


@router.get("/{job}")
async def get_job(request: Request, job: str) -> JSONResponse:
    """Describe a job."""
    return JSONResponse((await _found(request, job)).described())


@router.get(
    "/{job}/result",
    response_description="The transcript, in the format asked for.",
    responses={200: {"content": {kind: {} for kind in ("application/json", "text/plain")}}},
)
async def get_result(request: Request, job: str) -> Response:
    """Return what the transcription would have been answered, errors included."""
    found = await _found(request, job)
    result = await _jobs(request).result(found)
    if result is None:
        message = f"This job is {found.state.replace('_', ' ')}; ask again later."
        raise RequestError(message, code=ErrorCode.JOB_NOT_FINISHED, retry_after=_POLL_SECONDS)
    request.state.record.error = result.error_code
    return Response(result.body, result.status, media_type=result.media_type)


@router.delete("/{job}")
async def delete_job(request: Request, job: str) -> JSONResponse:
    """Stop a job, and delete it with its recording and its result."""
    found = await _found(request, job)
    await _jobs(request).delete(found)
    return JSONResponse({"id": found.id, "object": "audio.job.deleted", "deleted": True})


async def transcribe_job(front: Front, job: Job, recording: Path, is_abandoned: Callable[[], bool]) -> JobResult:
    """Transcribe the recording of a job; raise LaterError if it must wait and run again.

    `is_abandoned` tells whether no engine will start until the service is restarted.
    """
    record = Record(job.id, time.monotonic(), caller=job.caller)
    trace = front.tracer.begin("job", Traceparent.parse(job.traceparent or ""), is_server=False)
    with under(trace):
        try:
            return await _transcribe(front, job, recording, record, is_abandoned)
        finally:
            if trace is not None:
                attributes = {"steno.job": job.id, "steno.model": job.model, "error.type": record.error or ""}
                front.tracer.end(trace, record.stages, attributes, record.error)


async def _transcribe(
    front: Front, job: Job, recording: Path, record: Record, is_abandoned: Callable[[], bool]
) -> JobResult:
    request = orjson.loads(job.request)
    if job.caller is not None and not front.access.is_open and job.caller not in front.access.names:
        withdrawn = _failed(RequestError("The API key of this job was withdrawn.", code=ErrorCode.INVALID_API_KEY))
        _log(job, record, withdrawn.error_code)
        return withdrawn
    try:
        async with AsyncExitStack() as resources:
            file = resources.enter_context(recording.open("rb"))
            media_type = Headers({"content-type": request["media_type"]})
            upload = UploadFile(file, size=job.file_bytes, filename=job.id, headers=media_type)
            form = FormData([*map(tuple, request["fields"]), ("file", upload)])
            options = await parse_options(front, record, form, resources, is_translation=request["task"] == "translate")

            async def keep() -> None:
                """Keep the file, because the job may have to run again."""

            response = await answer(front, record, options, resources, keep, is_background=True)
    except RefusedError as error:
        raise LaterError(error.retry_after, None if isinstance(error, DrainingError) else _failed(error)) from None
    except (RequestError, AudioError, DispatchError) as error:
        if isinstance(error, RequestError) and error.retry_after is not None and _is_for_later(error):
            raise LaterError(error.retry_after) from None
        if isinstance(error, EngineLostError) and is_abandoned():
            raise LaterError(0.0) from None  # queued again, and run after the restart
        failed = _failed(error)
        record.error = failed.error_code
        _log(job, record, failed.error_code)
        return replace(failed, audio_seconds=record.audio_seconds)
    _log(job, record, None)
    media_type_of_answer = response.headers["content-type"]
    return JobResult(200, media_type_of_answer, bytes(response.body), audio_seconds=record.audio_seconds)


def _is_for_later(error: RequestError) -> bool:
    """Return whether a job runs again: where a client should retry, and at a key's limit, however long the wait."""
    return error.should_retry is not False or error.code is ErrorCode.RATE_LIMIT_EXCEEDED


def _failed(error: Exception) -> JobResult:
    response = error_response(error)
    return JobResult(response.status_code, "application/json", bytes(response.body), response.code, str(error))


def _jobs(request: Request) -> Jobs:
    jobs: Jobs | None = request.app.state.core.jobs
    if jobs is None:
        message = "This service keeps no jobs: no folder is set for them (STENO_JOBS_FOLDER)."
        raise RequestError(message, code=ErrorCode.JOBS_DISABLED)
    return jobs


async def _found(request: Request, job: str) -> Job:
    found = await _jobs(request).find(job, request.state.record.caller)
    if found is None:
        raise RequestError(f"The job {job!r} does not exist.", code=ErrorCode.JOB_NOT_FOUND)
    return found


@contextmanager
def _room() -> Iterator[None]:
    """Refuse a job for which there is no room."""
    try:
        yield
    except CallerFullError as error:
        raise RequestError(f"{error}.", code=ErrorCode.RATE_LIMIT_EXCEEDED, retry_after=_FULL_SECONDS) from None
    except StoreFullError as error:
        raise OverloadedError(f"The service has no room for this job: {error}.", _FULL_SECONDS) from None


def _delivery(jobs: Jobs, form: JobForm, secret: str | None, client: str) -> Delivery | None:
    if form.webhook is None:
        return None
    try:
        jobs.outbound.check(form.webhook)
    except ForbiddenUrlError as error:
        raise RequestError(f"webhook: {error}", code=ErrorCode.INVALID_VALUE, param="webhook") from None
    if form.webhook_secret is not None:
        try:
            secret = check_secret(form.webhook_secret)
        except ValueError as error:
            raise RequestError(f"{error}.", code=ErrorCode.INVALID_VALUE, param="webhook_secret") from None
    if secret is None:
        why = "a webhook is signed, and this service has no secret of its own"
        raise missing("webhook_secret", f"The field 'webhook_secret' is missing: {why}.")
    return Delivery(form.webhook, secret, client)


def _encoded_request(form: FormData, file: UploadFile, model: str, task: str) -> bytes:
    """Encode the form without its file, and with the model's id, because an alias may change."""
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str) and name != "model"]
    return orjson.dumps({"fields": [*fields, ("model", model)], "media_type": file.content_type or "", "task": task})


def _log(job: Job, record: Record, code: str | None) -> None:
    fields: dict[str, object] = {
        "job": job.id,
        "model": job.model,
        "seconds": round(time.monotonic() - record.began, 3),
    }
    if job.caller is not None:
        fields["key"] = job.caller
    if record.audio_seconds is not None:
        fields["audio_seconds"] = round(record.audio_seconds, 3)
    fields |= {f"{stage}_seconds": round(seconds, 4) for stage, seconds in record.stages.items()}
    log.info("job done", extra=fields | ({"code": code} if code else {}))
