"""Divide a job into shards of recordings of similar length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bulk.entries import Entry


@dataclass(frozen=True, slots=True)
class Shard:
    """Recordings, at least one, whose rows are in one file in this order. Shards are numbered from 0."""

    number: int
    entries: tuple[Entry, ...]


def shards(entries: Iterable[Entry], seconds: float) -> list[Shard]:
    """Divide recordings into shards of ``seconds`` of audio or a little more, the longest recordings first.

    Sorted like this, batches hold hardly any padding, a recording that does not fit the device fails at once, and
    workers end at about the same time, because the last recordings are short.
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
