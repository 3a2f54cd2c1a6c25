"""A log of the last batches and their outcomes, for `/debug/batches` and traces."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from service.dispatch.utterance import Utterance
from service.tracing import Tracer

_KEPT = 256


class BatchLog:
    """Keeps the last batches, and writes their spans.

    Args:
        tracer: writes a span for a batch in which traced requests have utterances.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._entries: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the entries, newest first; `BatchCard` (service/http/routes/debug.py) says what their fields are."""
        yield from reversed(self._entries)

    def note(
        self,
        outcome: str,
        engine: str,
        utterances: Sequence[Utterance],
        now: float,
        *,
        padded_seconds: float | None = None,
        infer_seconds: float | None = None,
    ) -> None:
        """Record a finished batch.

        Args:
            outcome: ok, oom (out of the device's memory), error, or lost with the engine.
            engine: name of the engine.
            utterances: the batch's utterances, at least one.
            now: time on the monotonic clock of `Utterance.sent`.
            padded_seconds: seconds of audio and padding.
            infer_seconds: the engine's computing time.
        """
        lengths = [utterance.seconds for utterance in utterances]
        lane, sent = utterances[0].lane, utterances[0].sent
        engine_seconds = now - sent
        entry: dict[str, Any] = {
            "ended_at": time.time(),
            "outcome": outcome,
            "engine": engine,
            "model": lane.model,
            "decoder": lane.decoder,
            "utterances": len(utterances),
            "background": sum(utterance.is_background for utterance in utterances),
            "shortest_seconds": min(lengths),
            "longest_seconds": max(lengths),
            "audio_seconds": sum(lengths),
            "padded_seconds": padded_seconds,
            "padding_share": max(0.0, 1 - sum(lengths) / padded_seconds) if padded_seconds else None,
            "queue_seconds": max(sent - utterance.arrived for utterance in utterances),
            "engine_seconds": engine_seconds,
            "infer_seconds": infer_seconds,
        }
        entry = {field: round(value, 4) if isinstance(value, float) else value for field, value in entry.items()}
        self._entries.append(entry)
        if traces := [utterance.trace for utterance in utterances if utterance.trace is not None]:
            said = {f"steno.batch.{field}": value for field, value in entry.items() if value is not None}
            del said["steno.batch.ended_at"]
            self._tracer.batch(traces, (engine_seconds, 0.0), said)
