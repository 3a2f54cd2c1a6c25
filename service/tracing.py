"""Traces: the id of a request's trace, its `traceparent` in and out, and, where a collector is named, its spans.

What is current travels with the context of a task, so that log lines, batches and requests to others know to which
trace they belong. Without a collector, and without a `traceparent` from the caller, there is nothing current, and
nothing is done. Spans are written when a request is over, out of the stages that are measured anyway.

https://www.w3.org/TR/trace-context/
"""

import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_CLOSE_MILLISECONDS = 5000

Attribute = str | int | float | bool


class TracingError(ValueError):
    """Traces are wanted, and cannot be made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Traceparent:
    """A span of a trace, as it is passed on.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 of them.
        is_sampled: whether its spans are kept.
    """

    trace_id: str
    span_id: str
    is_sampled: bool

    @classmethod
    def parse(cls, header: str) -> "Traceparent | None":
        """Read the header; None for anything that is not one, which is as if there were none."""
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
    """What is under way for a trace: a request, a job.

    Attributes:
        traceparent: for whom it asks something of.
        began_ns: Unix time.
        span: its own; None where no collector is named, and the caller's id is only passed on.
    """

    traceparent: Traceparent
    began_ns: int
    span: "Span | None" = None


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """Return the trace of the task that asks."""
    return _current.get()


def trace_fields() -> Mapping[str, str]:
    """Return what a log line says of the current trace."""
    trace = _current.get()
    return {} if trace is None else {"trace_id": trace.traceparent.trace_id, "span_id": trace.traceparent.span_id}


@contextmanager
def under(trace: Trace | None) -> Iterator[None]:
    """Let a trace be current."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


class Tracer(Protocol):
    """Begins and ends traces."""

    def begin(self, name: str, parent: Traceparent | None, *, is_server: bool = True) -> Trace | None:
        """Begin what belongs to a caller's trace, or to one of its own."""

    def end(
        self, trace: Trace, stages: Mapping[str, float], attributes: Mapping[str, Attribute], error: str | None
    ) -> None:
        """End it, with a span for each stage, in seconds, one after the other."""

    def batch(
        self, traces: Collection[Trace], seconds: tuple[float, float], attributes: Mapping[str, Attribute]
    ) -> None:
        """Write down a batch that ran for several of them; `seconds` ago it began and ended."""

    def close(self) -> None:
        """Send what has not been sent; may take some seconds."""


class PassingOn:
    """Makes no spans; a caller's trace still goes into logs, webhooks and requests for URLs."""

    def begin(self, name: str, parent: Traceparent | None, *, is_server: bool = True) -> Trace | None:  # noqa: ARG002
        """Keep the caller's."""
        return None if parent is None else Trace(parent, 0)

    def end(
        self, trace: Trace, stages: Mapping[str, float], attributes: Mapping[str, Attribute], error: str | None
    ) -> None:
        """Do nothing."""

    def batch(
        self, traces: Collection[Trace], seconds: tuple[float, float], attributes: Mapping[str, Attribute]
    ) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Exporting:
    """Sends spans to a collector, by OTLP over HTTP, from a thread of its own.

    What it cannot send is dropped: a collector that is down costs no request anything.

    Args:
        endpoint: the collector's, such as http://collector:4318; spans go to /v1/traces under it.
        share: of the traces that begin here; a caller decides for its own.
        version: of the service.

    Raises:
        TracingError: if OpenTelemetry's SDK or its exporter is not installed.
    """

    def __init__(self, endpoint: str, share: float, version: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        except ImportError:
            raise TracingError("traces need OpenTelemetry: pip install 'steno[tracing]'") from None
        self._api: Any = trace
        # Not the process's own provider: nothing that others instrument is to end up here.
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "steno", "service.version": version}),
            sampler=ParentBased(TraceIdRatioBased(share)),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("steno", version)

    def begin(self, name: str, parent: Traceparent | None, *, is_server: bool = True) -> Trace:
        """Begin a span."""
        api = self._api
        context = None if parent is None else api.set_span_in_context(self._remote(parent))
        began_ns = time.time_ns()
        kind = api.SpanKind.SERVER if is_server else api.SpanKind.INTERNAL
        span = self._tracer.start_span(name, context, kind, start_time=began_ns)
        own = span.get_span_context()
        return Trace(
            Traceparent(f"{own.trace_id:032x}", f"{own.span_id:016x}", own.trace_flags.sampled), began_ns, span
        )

    def end(
        self, trace: Trace, stages: Mapping[str, float], attributes: Mapping[str, Attribute], error: str | None
    ) -> None:
        """End its span, and write down those of its stages."""
        span = trace.span
        if span is None or not span.is_recording():
            return
        context, at = self._api.set_span_in_context(span), trace.began_ns
        for stage, seconds in stages.items():
            own = self._tracer.start_span(stage, context, start_time=at)
            at += max(0, round(seconds * 1e9))
            own.end(at)
        span.set_attributes(dict(attributes))
        if error is not None:
            span.set_status(self._api.StatusCode.ERROR, error)
        span.end(max(at, time.time_ns()))

    def batch(
        self, traces: Collection[Trace], seconds: tuple[float, float], attributes: Mapping[str, Attribute]
    ) -> None:
        """Write down a span of its own trace, with links to the requests whose utterances were in it."""
        spans = {trace.traceparent.span_id: trace.span for trace in traces if trace.span is not None}
        kept = [span for span in spans.values() if span.get_span_context().trace_flags.sampled]
        if not kept:
            return
        links = [self._api.Link(span.get_span_context()) for span in kept]
        now = time.time_ns()
        began, ended = (now - round(ago * 1e9) for ago in seconds)
        span = self._tracer.start_span(
            "batch", self._api.set_span_in_context(self._api.INVALID_SPAN), links=links, start_time=began
        )
        span.set_attributes(dict(attributes))
        span.end(ended)

    def close(self) -> None:
        """Send what has not been sent."""
        self._provider.force_flush(_CLOSE_MILLISECONDS)
        self._provider.shutdown()

    def _remote(self, parent: Traceparent) -> Any:  # noqa: ANN401  # a type of a package that may not be there
        flags = self._api.TraceFlags(_SAMPLED if parent.is_sampled else 0)
        context = self._api.SpanContext(
            int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags
        )
        return self._api.NonRecordingSpan(context)


def tracer(endpoint: str | None, share: float, version: str) -> Tracer:
    """Return what makes traces; without a collector, what passes those of callers on.

    Raises:
        TracingError: if traces are wanted, and OpenTelemetry is not installed.
    """
    return PassingOn() if endpoint is None else Exporting(endpoint, share, version)
