"""The last batches, and what became of them: for whoever wants to see what the batcher does."""

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
    """A batch that is over.

    Attributes:
        ended_at: Unix time.
        outcome: ok, oom, error or lost.
        engine: which one had it.
        model: for which it was.
        decoder: which of its decoders; None for the first.
        utterances: how many.
        background: of those, parts of jobs.
        shortest_seconds: of the utterances.
        longest_seconds: of the utterances.
        audio_seconds: all of them.
        padded_seconds: as the device was given it; None if it gave no answer.
        padding_share: of the padded seconds.
        queue_seconds: how long the one that waited longest had waited.
        engine_seconds: from sent to answered; what is not computing is the way there and back, and the wait for a
            batch before it.
        infer_seconds: computing; None if it gave no answer.
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
        """Return it as JSON has it, rounded to what matters."""
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


class BatchLog:
    """Keeps some, and tells traces of all.

    Args:
        tracer: writes a span for a batch in which traced requests have utterances.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._entries: deque[BatchEntry] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[BatchEntry]:
        """Yield them, the last first."""
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
        """Keep a batch that is over.

        Args:
            outcome: ok, oom, error or lost.
            engine: which one had it.
            utterances: what was in it, at least one.
            now: monotonic time, as the utterances have it.
            padded_seconds: as the device was given it.
            infer_seconds: computing.
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
