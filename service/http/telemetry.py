"""Telemetry of each request, whatever its outcome: id, stages, log line and metrics."""

import asyncio
import logging
import random
import re
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.dispatch.errors import stopped
from service.http.errors import error_response
from service.http.keys.allowance import Allowance
from service.metrics import Metrics, length_class
from service.tracing import Trace, Traceparent, Tracer, under
from transcripts.transcription import Coverage

log = logging.getLogger("steno.http")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_AUDIO = "/v1/audio/"
_SPOKEN = ("transcriptions", "translations")
_JOBS = _AUDIO + "jobs"
_RETRY_LANGUAGES = ("python", "js")
_PROBES = ("/healthz", "/readyz", "/metrics")  # requested every few seconds
_CLIENT_LEFT = 499
_REJECTIONS = {
    "overloaded": "full",
    "draining": "draining",
    "model_loading": "loading",
    "file_too_large": "too_large",
    "rate_limit_exceeded": "key",
}


@dataclass(slots=True)
class Record:
    """Facts about a request, filled in on its way; `request.state.record`.

    Attributes:
        request_id: the caller's own id if it sent a safe one, else a new one.
        began: when it began, monotonic.
        stages: seconds by stage: receive, load, decode, identify, queue, infer, respond.
        audio_seconds: audio to transcribe: the length of the recording, or of all its separate channels; None until it
            is decoded.
        error: code of the error answer.
        caller: name of the API key.
        coverage: how much of the recording was transcribed, at the end.
    """

    request_id: str
    began: float
    stages: dict[str, float] = field(default_factory=dict)
    audio_seconds: float | None = None
    body_bytes: int = 0
    error: str | None = None
    caller: str | None = None
    model: str | None = None
    allowance: Allowance | None = None
    coverage: Coverage | None = None

    def server_timing(self) -> str:
        """Return the stages as a `Server-Timing` header, in milliseconds."""
        return ", ".join(f"{stage};dur={1000 * seconds:.1f}" for stage, seconds in self.stages.items())


class Telemetry:
    """ASGI middleware. It is not starlette's BaseHTTPMiddleware, which hides a client that leaves."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = Record(_request_id(headers), time.monotonic())
        scope.setdefault("state", {})["record"] = record
        self._count_retry(headers)
        endpoint = _endpoint(scope["path"])
        trace = None
        if scope["path"] not in _PROBES:
            parent = Traceparent.parse(headers.get("traceparent", ""))
            trace = self._tracer.begin(f"{_method(scope)} {endpoint}", parent)
        with under(trace):
            await self._run(scope, receive, send, record, endpoint, trace)

    async def _run(
        self, scope: Scope, receive: Receive, send: Send, record: Record, endpoint: str, trace: Trace | None
    ) -> None:
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered = MutableHeaders(scope=message)
                answered["x-request-id"] = record.request_id
                if trace is not None:  # https://w3c.github.io/trace-context/#traceresponse-header
                    answered["traceresponse"] = str(trace.traceparent)
                if record.model is not None:
                    answered["x-steno-model"] = record.model
                if record.allowance is not None:
                    for name, value in record.allowance.headers():
                        answered[name] = value
            await send(message)

        async def fail(error: Exception) -> None:
            if not status:
                response = error_response(error)
                record.error = response.code
                await response(scope, receive, send_with_id)

        in_flight = self._metrics.http_in_flight.labels(endpoint)
        in_flight.inc()
        try:
            # HEAD is answered as GET, because health checks often use it (`wget --spider`); the server leaves out the
            # body (RFC 9110, 9.3.2).
            inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self._app(inner, receive, send_with_id)
        except ClientDisconnect:
            status = _CLIENT_LEFT
        except asyncio.CancelledError:  # the service ends, and waits no longer
            await fail(stopped())
        except Exception as error:  # the client gets an error in our shape, the log the traceback
            log.exception("request failed", extra={"request_id": record.request_id})
            await fail(error)
        finally:
            in_flight.dec()
            answered_from = record.began + sum(record.stages.values())
            record.stages["respond"] = max(0.0, time.monotonic() - answered_from)
            self._report(scope, endpoint, status or _CLIENT_LEFT, record)
            if trace is not None:
                self._end(trace, scope, status or _CLIENT_LEFT, record)

    def _end(self, trace: Trace, scope: Scope, status: int, record: Record) -> None:
        attributes: dict[str, str | int | float] = {
            "http.request.method": _method(scope),
            "http.response.status_code": status,
            "http.request.body.size": record.body_bytes,
            "steno.request_id": record.request_id,
            "steno.model": record.model or "",
            "steno.audio_seconds": record.audio_seconds or 0.0,
            "steno.key": record.caller or "",
            "error.type": record.error or "",
        }
        given = {name: value for name, value in attributes.items() if value != ""}
        self._tracer.end(trace, record.stages, given, record.error if status >= 500 else None)

    def _count_retry(self, headers: Headers) -> None:
        if headers.get("x-stainless-retry-count", "0") not in ("0", ""):
            language = headers.get("x-stainless-lang", "")
            self._metrics.http_client_retries.labels(language if language in _RETRY_LANGUAGES else "other").inc()

    def _report(self, scope: Scope, endpoint: str, status: int, record: Record) -> None:
        metrics = self._metrics
        seconds = time.monotonic() - record.began
        method = _method(scope)
        metrics.http_requests.labels(endpoint, method, str(status)).inc()
        metrics.http_request_duration.labels(endpoint, f"{status // 100}xx").observe(seconds)
        if record.error is not None:
            metrics.errors.labels(record.error).inc()
            if record.error in _REJECTIONS:
                metrics.queue_rejected.labels(_REJECTIONS[record.error]).inc()
        if endpoint in _SPOKEN:
            if record.caller is not None:
                metrics.key_requests.labels(record.caller, f"{status // 100}xx").inc()
            if status == 200 and record.audio_seconds and record.error is None:
                self._report_transcription(record, record.audio_seconds, seconds)
        log.log(
            logging.DEBUG if scope["path"] in _PROBES else logging.INFO,
            "request",
            extra=_fields(scope, endpoint, status, record, seconds),
        )

    def _report_transcription(self, record: Record, audio_seconds: float, seconds: float) -> None:
        metrics = self._metrics
        for stage, stage_seconds in record.stages.items():
            metrics.stage_duration.labels(stage).observe(stage_seconds)
        if record.caller is not None:
            metrics.key_audio_seconds.labels(record.caller).inc(audio_seconds)
        length = length_class(audio_seconds)
        metrics.transcription_duration.labels(length).observe(seconds)
        metrics.latency_ratio.labels(length).observe(seconds / audio_seconds)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "POST") else "other"


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id") or headers.get("x-client-request-id") or ""
    # No secret, so not from the system, whose every call hands the interpreter lock to another thread.
    return given if _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _endpoint(path: str) -> str:
    if path.startswith(_AUDIO) and (endpoint := path.removeprefix(_AUDIO)) in _SPOKEN:
        return endpoint
    if path == _JOBS or path.startswith(_JOBS + "/"):
        return "jobs"
    return "models" if path.startswith("/v1/models") else "other"


def _fields(scope: Scope, endpoint: str, status: int, record: Record, seconds: float) -> dict[str, object]:
    fields: dict[str, object] = {
        "request_id": record.request_id,
        "method": scope["method"],
        "endpoint": endpoint,
        "status": status,
        "seconds": round(seconds, 4),
    }
    known = {"key": record.caller, "model": record.model, "code": record.error}
    fields |= {name: value for name, value in known.items() if value is not None}
    if record.body_bytes:
        fields["body_bytes"] = record.body_bytes
    if record.audio_seconds is not None:
        fields["audio_seconds"] = round(record.audio_seconds, 3)
        fields |= {f"{stage}_seconds": round(stage_seconds, 4) for stage, stage_seconds in record.stages.items()}
    coverage = record.coverage
    if coverage is not None and coverage.skipped + coverage.speech_without_text + coverage.rescued > 0:
        fields["skipped_seconds"] = coverage.skipped
        fields["speech_without_text_seconds"] = coverage.speech_without_text
        fields["rescued_seconds"] = coverage.rescued
    return fields
