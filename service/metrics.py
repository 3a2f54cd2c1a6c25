"""Every metric of the service; docs/operations.md has the same list.

Times are in seconds, and labels have few values. A share is two counters, which can be summed over instances. The main
process and each HTTP worker have a registry (service/workers/totals.py sums them); engines report in messages.
"""

import asyncio
import platform
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from typing import Literal, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from service.engine.protocol import Ready

# Prometheus' text format has no place for the time when a series began, so it would be a metric of its own.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it

ConnectionRefusal = Literal[
    "connections",
    "address_connections",
    "head_timeout",
    "head_too_large",
    "uri_too_long",
    "malformed",
    "connect",
    "host",
]
ENDPOINTS = ("transcriptions", "translations", "jobs", "models", "other")
STAGES = ("receive", "load", "decode", "identify", "queue", "infer", "respond")
LENGTH_CLASSES = ("lt5s", "lt30s", "lt5m", "lt1h", "ge1h")
_LENGTH_BOUNDS = (5.0, 30.0, 300.0, 3600.0)

_REQUEST_EDGES = (0.05, 0.1, 0.2, 0.5, 0.75, 1, 2, 5, 10, 30, 60, 300)
_STAGE_EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ITEM_EDGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
_PADDED_EDGES = (1, 5, 10, 30, 60, 120, 240, 480, 960, 1920)
_AUDIO_EDGES = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400)


def length_class(seconds: float) -> str:
    """Return the value of the label ``length_class`` for audio."""
    return LENGTH_CLASSES[bisect_right(_LENGTH_BOUNDS, seconds)]


_M = TypeVar("_M", Counter, Histogram)


def _quick(metric: _M) -> _M:
    """Cache the series of a metric by label values, because a request looks up twenty.

    Not for a metric whose series are removed.
    """
    metric.labels = cache(metric.labels)  # type: ignore[method-assign]
    return metric


class Metrics:
    """The registry of a process, and its metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return _quick(Counter(f"steno_{name}", meaning, labels, registry=registry))

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"steno_{name}", meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, edges: tuple[float, ...], *labels: str) -> Histogram:
            return _quick(Histogram(f"steno_{name}", meaning, labels, buckets=edges, registry=registry))

        # HTTP
        self.http_requests = counter(
            "http_requests_total", "Requests by exact status; 499: the client left.", "endpoint", "method", "status"
        )
        self.http_request_duration = histogram(
            "http_request_duration_seconds",
            "From a request's head to the last byte sent.",
            _REQUEST_EDGES,
            "endpoint",
            "status_class",
        )
        self.http_in_flight = gauge("http_requests_in_flight", "Requests that are not finished.", "endpoint")
        self.http_client_retries = counter(
            "http_client_retries_total", "Requests that an OpenAI client sent again.", "lang"
        )
        self.connections = gauge("connections", "Open connections.")
        self.connections_refused = counter(
            "connections_refused_total", "Connections closed before a request, by reason.", "reason"
        )
        self.errors = counter("errors_total", "Error answers by code.", "kind")

        # Keys
        self.key_requests = counter(
            "key_requests_total", "Requests for transcripts, by name of the key.", "key", "status_class"
        )
        self.key_audio_seconds = counter("key_audio_seconds_total", "Audio transcribed, by name of the key.", "key")

        # Requests for transcripts
        self.stage_duration = histogram(
            "stage_duration_seconds", "Time of successful transcriptions by stage.", _STAGE_EDGES, "stage"
        )
        self.transcription_duration = histogram(
            "transcription_duration_seconds",
            "Server time of successful transcriptions.",
            _REQUEST_EDGES,
            "length_class",
        )
        self.latency_ratio = histogram(
            "transcription_latency_ratio",
            "Server time divided by audio time.",
            (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
            "length_class",
        )
        self.audio_seconds = counter("audio_seconds_total", "Accepted audio by outcome.", "outcome", "model")
        self.audio_duration = histogram("audio_duration_seconds", "Audio of a transcribed recording.", _AUDIO_EDGES)
        self.audio_decode = counter("audio_decode_total", "Uploads by result of decoding.", "container", "result")
        self.decode_crashes = counter(
            "decode_crashes_total", "Decoding processes that crashed on a file, or took too long for it."
        )
        self.words = counter("words_total", "Words in transcripts; a sudden drop means a fault.", "model")
        self.audio_without_words = counter(
            "audio_without_words_seconds_total",
            "Audio without words: no_speech was not transcribed, speech was, rescued got words when transcribed again.",
            "kind",
            "model",
        )
        self.empty_transcripts = counter("empty_transcripts_total", "Transcripts without a word.", "model")

        # Queue
        self.queue_depth = gauge("queue_depth", "Utterances waiting for a batch.", "model")
        self.queue_audio_seconds = gauge(
            "queue_audio_seconds", "Audio waiting for a batch: the signal to scale on.", "model"
        )
        self.queue_oldest_age = gauge("queue_oldest_age_seconds", "Age of the utterance that waits longest.")
        self.queue_predicted_wait = gauge(
            "queue_predicted_wait_seconds",
            "Predicted wait: a turn of each recording before a new one, divided by RTFx.",
        )
        self.queue_wait = histogram(
            "queue_wait_seconds", "Wait of an utterance for an engine.", _STAGE_EDGES, "length_class"
        )
        self.queue_rejected = counter(
            "queue_rejected_total", "Requests refused by a limit, while loading or while draining.", "reason"
        )
        self.queue_dropped = counter("queue_dropped_total", "Utterances dropped after admission.", "reason")
        self.draining = gauge("draining", "1 while the service finishes accepted work and takes no more.")

        # Jobs
        self.jobs = counter("jobs_total", "Jobs by outcome.", "outcome")
        self.jobs_unfinished = gauge("jobs_unfinished", "Jobs that wait, or are under way.", "state")
        self.webhook_deliveries = counter("webhook_deliveries_total", "Attempts to deliver a webhook.", "outcome")

        # Batches
        self.batches = counter("batches_total", "Batches by result.", "result", "model")
        self.batch_items = histogram("batch_items", "Utterances per batch.", _ITEM_EDGES, "model")
        self.batch_padded_seconds = histogram(
            "batch_padded_seconds", "Audio per batch with padding: count x padded length.", _PADDED_EDGES, "model"
        )
        self.batch_audio_seconds = counter("batch_audio_seconds_total", "Audio of batches, without padding.", "model")
        self.batch_padding_seconds = counter(
            "batch_padding_seconds_total",
            "Padding of batches, computed or not; its share is padding / (padding + audio).",
            "model",
        )
        self.batch_duration = histogram(
            "batch_duration_seconds", "Time of a batch in its engine.", _STAGE_EDGES, "model"
        )
        self.out_of_memory = counter("oom_total", "Batches that did not fit the device.")

        # Engines
        self.engine_up = gauge("engine_up", "1 while the engine has a model ready.", "device")
        self.engine_busy_seconds = counter("engine_busy_seconds_total", "Device time spent on batches.", "device")
        self.engine_restarts = counter("engine_restarts_total", "Engines that were replaced.", "reason")
        self.engine_heartbeat = gauge(
            "engine_heartbeat_timestamp_seconds", "When the engine's last heartbeat came.", "device"
        )
        self.model_loads = counter("model_loads_total", "Models loaded while the service ran, by result.", "result")
        self.http_processes = gauge("http_processes", "HTTP processes before the dispatcher; 0 if it has HTTP itself.")
        self.event_loop_lag = histogram(
            "event_loop_lag_seconds", "How late a timer of the event loop fires.", _STAGE_EDGES
        )
        meaning = "CUDA graphs by what they compute: captured, refused by the device, or without memory (no_room)."
        self.graphs = gauge("graphs", meaning, "model", "kind", "state")
        meaning = (
            "Fast paths of a GPU: used, slower than plain operations, disagreed with them, failed, hung, or off; as "
            "known_speech, all of them together with a clip of speech."
        )
        self.fast_path = gauge("fast_path", meaning, "model", "path", "state")
        self.model_info = gauge("model_info", "1 for each model that is served.", "model", "family", "dtype", "device")
        self.build_info = gauge("build_info", "1 for this build; its version is a label.", "version", "python")

        self._of_models = (
            *(self.words, self.empty_transcripts, self.queue_depth, self.queue_audio_seconds, self.batch_items),
            *(self.batch_padded_seconds, self.batch_audio_seconds, self.batch_padding_seconds, self.batch_duration),
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Create the series of all known label values: a series that appears with its first error has no rate."""
        known: dict[Counter | Gauge | Histogram, Iterable[str]] = {
            self.stage_duration: STAGES,
            self.queue_wait: LENGTH_CLASSES,
            self.transcription_duration: LENGTH_CLASSES,
            self.latency_ratio: LENGTH_CLASSES,
            self.http_in_flight: ENDPOINTS,
            self.queue_rejected: ("full", "draining", "loading", "too_large", "key"),
            self.connections_refused: get_args(ConnectionRefusal),
            self.jobs: ("completed", "failed", "cancelled", "expired"),
            self.jobs_unfinished: ("queued", "in_progress"),
            self.webhook_deliveries: ("delivered", "retried", "failed"),
            self.queue_dropped: ("cancelled", "expired", "engine_lost", "draining"),
            self.engine_restarts: ("exit", "stuck", "cuda_fatal"),
            self.model_loads: ("ok", "error"),
            self.errors: ("overloaded", "engine_lost", "internal_error", "invalid_audio", "unsupported_format"),
        }
        for metric, values in known.items():
            for value in values:
                metric.labels(value)

    def expect_keys(self, names: Iterable[str]) -> None:
        """Create the series of keys, at zero."""
        for name in names:
            self.key_audio_seconds.labels(name)
            for status_class in ("2xx", "4xx", "5xx"):
                self.key_requests.labels(name, status_class)

    def expect_models(self, models: Iterable[str]) -> None:
        """Create the series of models that are not loaded yet, at zero."""
        for model in models:
            for outcome in ("ok", "error", "cancelled"):
                self.audio_seconds.labels(outcome, model)
            for result in ("ok", "oom", "error", "lost"):
                self.batches.labels(result, model)
            for kind in ("no_speech", "speech", "rescued"):
                self.audio_without_words.labels(kind, model)
            for metric in self._of_models:
                metric.labels(model)

    def describe_model(self, ready: Ready) -> None:
        """Set the metrics of a model that an engine has loaded."""
        for work, states in ready.graphs.items():
            for state, count in states.items():
                self.graphs.labels(ready.model, work, state).set(count)
        for path, state in ready.fast_paths.items():
            self.fast_path.labels(ready.model, path, state).set(1)
        info = ready.info
        self.model_info.labels(ready.model, info.family, info.dtype, info.device).set(1)

    def forget_model(self, model: str) -> None:
        """Remove the gauges of a model that was unloaded; its counters stay, as Prometheus expects."""
        for gauge in (self.queue_depth, self.queue_audio_seconds, self.model_info, self.graphs, self.fast_path):
            gauge.remove_by_labels({"model": model})

    def describe_build(self, version: str) -> None:
        """Set the metric of the version."""
        self.build_info.labels(version, platform.python_version()).set(1)

    async def exposition(self) -> bytes:
        """Return all metrics of this process in Prometheus' text format."""
        # In a thread: it takes some milliseconds, too long for the event loop.
        return await asyncio.to_thread(generate_latest, self.registry)
