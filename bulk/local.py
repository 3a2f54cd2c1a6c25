"""A job on one device, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bulk.file_transcripts import Failed
from bulk.rows import Tally
from bulk.transcription import transcribe_shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from bulk.file_transcripts import Options
    from bulk.job import Job
    from bulk.transcription import Outcome
    from models import Transcriber


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
