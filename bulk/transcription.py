"""Transcribe shards with one model, without a pause between them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bulk.file_transcripts import Failed, Options, Transcribed, transcribe_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
