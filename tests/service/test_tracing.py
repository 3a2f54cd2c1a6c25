"""Traces go to a real collector over OTLP, and reach logs and webhooks."""

import contextlib
import http.server
import json
import logging
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stub_engine import FAIL_SAMPLES, SAMPLE_RATE
from service.logs import configure
from service.tracing import Traceparent, Tracer, TracingError, tracer, under
from tests.service.serving import form, listening, serving, tone, wait_for, wav

SECOND = tone(SAMPLE_RATE)
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP's protobuf, and keeps spans by name."""

    def do_POST(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        assert self.path == "/v1/traces"
        assert self.headers["content-type"] == "application/x-protobuf"
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        for resource in sent.resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            assert names["service.name"] == "steno"
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


@pytest.fixture
def collector():
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (make setup)")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="its exporter is not installed (make setup)")
    with listening(Collector) as server:
        server.spans = []
        yield server


def traced(collector, **settings):
    return serving(otlp_endpoint=collector.origin, **settings)


def named(collector, name: str) -> list:
    return [span for span in collector.spans if span.name == name]


def test_a_request_has_a_span_and_one_for_each_stage_within_it(collector):
    with traced(collector) as service:
        began = time.time_ns()
        answer = service.post(**form(wav(SECOND)), headers={"traceparent": PARENT})
        ended = time.time_ns()

    (request,) = named(collector, "POST transcriptions")
    assert request.trace_id.hex() == TRACE_ID
    assert request.parent_span_id.hex() == "00f067aa0ba902b7"
    assert answer.headers["traceresponse"] == f"00-{TRACE_ID}-{request.span_id.hex()}-01"
    attributes = {one.key: one.value for one in request.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["steno.audio_seconds"].double_value == 1.0
    assert attributes["steno.request_id"].string_value == answer.headers["x-request-id"]
    assert began <= request.start_time_unix_nano <= request.end_time_unix_nano <= ended + 10**9
    stages = [span for span in collector.spans if span.parent_span_id == request.span_id]
    assert [span.name for span in stages] == ["receive", "decode", "queue", "infer", "respond"]
    times = [time for span in stages for time in (span.start_time_unix_nano, span.end_time_unix_nano)]
    assert times == sorted(times)
    assert times[0] == request.start_time_unix_nano


def test_server_errors_are_marked_and_unsampled_traces_have_no_spans(collector):
    with traced(collector) as service:
        service.post(**form(wav(tone(FAIL_SAMPLES))))
        service.post(**form(wav(SECOND)), headers={"traceparent": PARENT.removesuffix("1") + "0"})
        service.client.get("/healthz")

    (request,) = [span for span in collector.spans if not span.parent_span_id]
    assert (request.status.code, request.status.message) == (2, "internal_error")
    assert TRACE_ID not in {span.trace_id.hex() for span in collector.spans}


def test_a_job_goes_on_with_the_trace_that_it_was_made_with(collector, tmp_path):
    with traced(collector, jobs_folder=tmp_path) as service:
        made = service.client.post("/v1/audio/jobs", **form(wav(SECOND)), headers={"traceparent": PARENT}).json()
        wait_for(lambda: service.client.get(f"/v1/audio/jobs/{made['id']}").json()["status"] == "completed")

    (job,) = named(collector, "job")
    (request,) = named(collector, "POST jobs")
    assert (job.trace_id.hex(), job.parent_span_id) == (TRACE_ID, request.span_id)


@pytest.mark.slow
def test_a_collector_that_is_down_costs_no_request_anything(collector):
    with serving(otlp_endpoint="http://127.0.0.1:1") as service:
        assert service.post(**form(wav(SECOND))).status_code == 200


def test_without_a_collector_a_callers_trace_is_passed_on(tmp_path):
    received = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            received.append(self.headers["traceparent"])
            self.send_response(204)
            self.end_headers()

    settings = {"jobs_folder": tmp_path, "webhook_secret": "a secret of some length"}
    with listening(Receiver) as receiver, serving(webhook_hosts=receiver.origin, **settings) as service:
        fields = form(wav(SECOND), webhook=receiver.origin)
        answer = service.client.post("/v1/audio/jobs", **fields, headers={"traceparent": PARENT})
        wait_for(lambda: bool(received))
        untraced = service.post(**form(wav(SECOND)))

    assert answer.headers["traceresponse"] == PARENT
    assert received == [PARENT]
    assert "traceresponse" not in untraced.headers


def test_log_lines_carry_the_trace(capsys):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure("json", "info")
        trace = Tracer().begin("x", Traceparent.parse(PARENT))
        with contextlib.suppress(ValueError), under(trace):
            logging.getLogger("steno.test").info("within")
            raise ValueError
        logging.getLogger("steno.test").info("without")
    finally:
        root.handlers, root.level = before, level

    within, without = map(json.loads, capsys.readouterr().err.splitlines())
    assert (within["trace_id"], within["span_id"]) == (TRACE_ID, "00f067aa0ba902b7")
    assert "trace_id" not in without


def test_traces_without_opentelemetry_are_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracingError, match="pip install"):
        tracer("http://127.0.0.1:1", "0")


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_traceparent_is_read_as_it_was_written(trace, span, is_sampled):
    written = Traceparent(f"{trace:032x}", f"{span:016x}", is_sampled)

    assert Traceparent.parse(str(written)) == written
    assert Traceparent.parse("01" + str(written)[2:] + "-of-the-future") == written


@pytest.mark.parametrize(
    "header",
    [
        "",
        "words",
        PARENT.upper(),
        "ff" + PARENT[2:],
        PARENT + "-more",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-" + TRACE_ID + "-" + "0" * 16 + "-01",
        PARENT + "\n",
    ],
)
def test_an_invalid_traceparent_is_ignored(header):
    assert Traceparent.parse(header) is None
