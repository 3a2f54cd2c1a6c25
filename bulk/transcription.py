"""Shards through one model, without a pause between them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bulk.file_transcripts import Failed, Options, Transcribed, transcribe_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bulk.plan import Shard
    from models import Model

Outcome = Transcribed | Failed


def transcribe_shards(
    model: Model, shards: Iterable[Shard], options: Options, heard: Callable[[Outcome], object] = lambda _: None
) -> Iterator[tuple[Shard, list[Outcome]]]:
    """Yield each shard with what became of its recordings, when all are done; the next ones are decoded meanwhile.

    Args:
        model: the model.
        shards: taken as the model comes to them.
        options: how.
        heard: told of each recording.
    """
    taken: deque[Shard] = deque()

    def locations() -> Iterator[str]:
        for shard in shards:
            taken.append(shard)
            yield from (entry.location for entry in shard.entries)

    outcomes: list[Outcome] = []
    for outcome in transcribe_files(model, locations(), options):
        outcomes.append(outcome)
        heard(outcome)
        if len(outcomes) == len(taken[0].entries):
            yield taken.popleft(), outcomes
            outcomes = []
