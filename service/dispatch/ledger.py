"""Where every accepted utterance is: which engine holds which batch, and what comes back when one is lost."""

from collections.abc import Iterable

from service.dispatch.utterance import Utterance


class Ledger:
    """The batches that engines hold; every utterance in it will be answered or given back exactly once."""

    def __init__(self) -> None:
        self._held: dict[object, dict[int, list[Utterance]]] = {}
        self._batches = 0

    def hand_over(self, engine: object, batch: Iterable[Utterance]) -> int:
        """Note that an engine holds a batch; returns the batch's number, never used again."""
        self._batches += 1
        self._held.setdefault(engine, {})[self._batches] = list(batch)
        return self._batches

    def held(self, engine: object) -> list[Utterance]:
        """Return the utterances that an engine holds."""
        return [utterance for batch in self._held.get(engine, {}).values() for utterance in batch]

    def take_back(self, engine: object, number: int) -> list[Utterance]:
        """Return the utterances of an answered batch, and forget it."""
        return self._held.get(engine, {}).pop(number, [])

    def lose(self, engine: object) -> list[list[Utterance]]:
        """Return every batch of an engine that is gone, and forget it."""
        return list(self._held.pop(engine, {}).values())
