"""A log of the last batches and their outcomes, for `/debug/batches` and traces."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from service.dispatch.utterance import Utterance
from service.tracing import Tracer

_KEPT = 256


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A finished batch.

    Attributes:
        ended_at: Unix time.
        outcome: ok, oom (out of the device's memory), error, or lost with the engine.
        engine: name of the engine.
        model: id of the model.
        decoder: the decoder; None for the model's first.
        utterances: number of utterances.
        background: number of utterances of jobs.
        shortest_seconds: length of the shortest utterance.
        longest_seconds: length of the longest utterance.
        audio_seconds: audio of all utterances, without padding.
        padded_seconds: audio and padding; None unless the outcome is ok.
        padding_share: share of padding in the padded seconds, or None.
        queue_seconds: longest time from an utterance's acceptance to sending.
        engine_seconds: from sending to outcome, with the wait for earlier batches.
        infer_seconds: computing time; None unless the outcome is ok.
    """

    ended_at: float
    outcome: str
    engine: str
    model: str
    decoder: str | None
    utterances: int
    background: int
    shortest_seconds: float
    longest_seconds: float
    audio_seconds: float
    padded_seconds: float | None
    padding_share: float | None
    queue_seconds: float
    engine_seconds: float
    infer_seconds: float | None

    def described(self) -> dict[str, Any]:
        """Return the entry for JSON, rounded to four decimals."""
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


class BatchLog:
    """Keeps the last batches, and writes their spans.

    Args:
        tracer: writes a span for a batch in which traced requests have utterances.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._entries: deque[BatchEntry] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[BatchEntry]:
        """Yield the entries, newest first."""
        return reversed(self._entries)

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
            outcome: as `BatchEntry.outcome`.
            engine: name of the engine.
            utterances: the batch's utterances, at least one.
            now: time on the monotonic clock of `Utterance.sent`.
            padded_seconds: seconds of audio and padding.
            infer_seconds: the engine's computing time.
        """
        lengths = [utterance.seconds for utterance in utterances]
        lane, sent = utterances[0].lane, utterances[0].sent
        entry = BatchEntry(
            ended_at=time.time(),
            outcome=outcome,
            engine=engine,
            model=lane.model,
            decoder=lane.decoder,
            utterances=len(utterances),
            background=sum(utterance.is_background for utterance in utterances),
            shortest_seconds=min(lengths),
            longest_seconds=max(lengths),
            audio_seconds=sum(lengths),
            padded_seconds=padded_seconds,
            padding_share=max(0.0, 1 - sum(lengths) / padded_seconds) if padded_seconds else None,
            queue_seconds=max(sent - utterance.arrived for utterance in utterances),
            engine_seconds=now - sent,
            infer_seconds=infer_seconds,
        )
        self._entries.append(entry)
        if traces := [utterance.trace for utterance in utterances if utterance.trace is not None]:
            self._tracer.batch(traces, (entry.engine_seconds, 0.0), _attributes(entry))


def _attributes(entry: BatchEntry) -> Mapping[str, Any]:
    described = entry.described()
    return {f"steno.batch.{key}": value for key, value in described.items() if value is not None and key != "ended_at"}
