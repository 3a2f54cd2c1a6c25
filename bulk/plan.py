"""A job in shards: recordings of about one length go together, over the whole job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bulk.entries import Entry


@dataclass(frozen=True, slots=True)
class Shard:
    """Recordings whose rows are in one file.

    Attributes:
        number: from 0.
        entries: the recordings, in the order of the rows; at least one.
    """

    number: int
    entries: tuple[Entry, ...]


def shards(entries: Iterable[Entry], seconds: float) -> list[Shard]:
    """Divide recordings among shards of so many ``seconds`` of audio or a little more, the longest recordings first.

    So the batches of a shard, and those between two, hold hardly any padding; what does not fit the device shows at
    once; and many workers end at about the same time, because what is left for the end is short.
    """
    planned: list[Shard] = []
    taken: list[Entry] = []
    held = 0.0
    for entry in sorted(entries, key=lambda entry: (-entry.seconds, entry.location)):
        taken.append(entry)
        held += entry.seconds
        if held >= seconds:
            planned.append(Shard(len(planned), tuple(taken)))
            taken, held = [], 0.0
    if taken:
        planned.append(Shard(len(planned), tuple(taken)))
    return planned
