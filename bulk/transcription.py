"""Transcribe shards with one model, without a pause between them; a job on one device, in this process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bulk.file_transcripts import Failed, Options, Transcribed, transcribe_files
from bulk.rows import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bulk.job import Job
    from bulk.plan import Shard
    from models import Transcriber

Outcome = Transcribed | Failed


def transcribe_shards(
    model: Transcriber,
    shards: Iterable[Shard],
    options: Options,
    on_outcome: Callable[[Outcome], object] = lambda _: None,
) -> Iterator[tuple[Shard, list[Outcome]]]:
    """Yield each shard with the outcomes of its recordings, while the next ones are taken and decoded."""
    taken: deque[Shard] = deque()

    def locations() -> Iterator[str]:
        for shard in shards:
            taken.append(shard)
            yield from (entry.location for entry in shard.entries)

    outcomes: list[Outcome] = []
    for outcome in transcribe_files(model, locations(), options):
        outcomes.append(outcome)
        on_outcome(outcome)
        if len(outcomes) == len(taken[0].entries):
            yield taken.popleft(), outcomes
            outcomes = []


class LocalEngine:
    """Transcribes shards one after the other."""

    devices = 1  # that work at the same time

    def __init__(self, model: Transcriber, options: Options) -> None:
        self._model = model
        self._options = options

    def run(self, job: Job, progress: Callable[[Tally], object]) -> Tally:
        """Transcribe what is left of a job, and return its tally; raise JobError if a shard cannot be written.

        ``progress`` gets the tally of each recording, before its shard is written.
        """

        def on_outcome(outcome: Outcome) -> None:
            progress(Tally(1, 1) if isinstance(outcome, Failed) else Tally(1, 0, outcome.seconds))

        done = Tally()
        for shard, outcomes in transcribe_shards(self._model, job.left, self._options, on_outcome):
            done += job.writer.write(shard, outcomes)
        return done
