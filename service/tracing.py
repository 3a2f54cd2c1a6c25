"""Traces: reading and passing on `traceparent` and, with a collector, writing spans.

The current trace is in a context variable, so that log lines and outgoing requests know their trace. Without a
collector and without a `traceparent` from the caller there is none. Spans are written when a request is over, from the
stages that are measured anyway.

https://www.w3.org/TR/trace-context/
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_CLOSE_MILLISECONDS = 5000

Attribute = str | int | float | bool


class TracingError(ValueError):
    """Traces are turned on, but OpenTelemetry is missing; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Traceparent:
    """The id of a span, as it is passed on."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16 hexadecimal digits
    is_sampled: bool  # whether its spans are kept

    @classmethod
    def parse(cls, header: str) -> "Traceparent | None":
        """Parse the header; None if it is not valid, which counts as absent."""
        found = _TRACEPARENT.fullmatch(header)
        if not found or found[1] == "ff" or (found[1] == "00" and found[5]):
            return None
        if not int(found[2], 16) or not int(found[3], 16):
            return None
        return cls(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))

    def __str__(self) -> str:
        """Write the header."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


@dataclass(slots=True, eq=False)
class Trace:
    """A traced request or job."""

    traceparent: Traceparent  # the id to send with outgoing requests
    span: Any = None  # OpenTelemetry's; None without a collector, when the caller's id is only passed on


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """Return the trace of the current task."""
    return _current.get()


def trace_fields() -> Mapping[str, str]:
    """Return the fields of the current trace for a log line."""
    trace = _current.get()
    return {} if trace is None else {"trace_id": trace.traceparent.trace_id, "span_id": trace.traceparent.span_id}


@contextmanager
def under(trace: Trace | None) -> Iterator[None]:
    """Make a trace the current one."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


class Tracer:
    """Begins and ends traced requests and jobs.

    This one writes no spans; a caller's trace still goes into logs, webhooks and outgoing requests.
    """

    def begin(self, name: str, parent: Traceparent | None, *, is_server: bool = True) -> Trace | None:  # noqa: ARG002
        """Begin a request or job, in the caller's trace or, if spans are written, a new one."""
        return None if parent is None else Trace(parent)

    def end(
        self, trace: Trace, stages: Mapping[str, float], attributes: Mapping[str, Attribute], error: str | None
    ) -> None:
        """End a request or job, with a span for each stage; stages are in seconds, one after the other."""

    def close(self) -> None:
        """Send the remaining spans, which may take some seconds."""


class Exporting(Tracer):
    """Sends spans to a collector by OTLP over HTTP, in a thread of its own.

    Spans that cannot be sent are dropped, so that a collector that is down delays no request.

    Args:
        endpoint: the collector, such as http://collector:4318; spans go to /v1/traces under it.
        version: version of the service.

    Raises:
        TracingError: if OpenTelemetry's SDK or its exporter is not installed.
    """

    def __init__(self, endpoint: str, version: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise TracingError("traces need OpenTelemetry: pip install 'steno[tracing]'") from None
        self._api: Any = trace
        self._propagator = TraceContextTextMapPropagator()
        resource = Resource.create({"service.name": "steno", "service.version": version})
        self._spans: Any = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces"))
        # Not the process's global provider, so that spans of other libraries do not end up here.
        provider = TracerProvider(resource=resource, sampler=ParentBased(ALWAYS_ON), shutdown_on_exit=False)
        provider.add_span_processor(self._spans)
        self._tracer = provider.get_tracer("steno", version)

    def begin(self, name: str, parent: Traceparent | None, *, is_server: bool = True) -> Trace:
        """Begin a span."""
        api = self._api
        context = None if parent is None else self._propagator.extract({"traceparent": str(parent)})
        kind = api.SpanKind.SERVER if is_server else api.SpanKind.INTERNAL
        span = self._tracer.start_span(name, context, kind)
        own = span.get_span_context()
        return Trace(Traceparent(f"{own.trace_id:032x}", f"{own.span_id:016x}", own.trace_flags.sampled), span)

    def end(
        self, trace: Trace, stages: Mapping[str, float], attributes: Mapping[str, Attribute], error: str | None
    ) -> None:
        """End its span, and write the spans of its stages."""
        span = trace.span
        if span is None or not span.is_recording():
            return
        context, at = self._api.set_span_in_context(span), span.start_time
        for stage, seconds in stages.items():
            own = self._tracer.start_span(stage, context, start_time=at)
            at += max(0, round(seconds * 1e9))
            own.end(at)
        span.set_attributes(dict(attributes))
        if error is not None:
            span.set_status(self._api.StatusCode.ERROR, error)
        span.end(max(at, time.time_ns()))

    def close(self) -> None:
        """Send the remaining spans."""
        self._spans.force_flush(_CLOSE_MILLISECONDS)
        self._spans.shutdown()


def tracer(endpoint: str | None, version: str) -> Tracer:
    """Return a tracer; without a collector, one that only passes on those of callers.

    Raises:
        TracingError: if there is a collector, but OpenTelemetry is not installed.
    """
    return Tracer() if endpoint is None else Exporting(endpoint, version)
