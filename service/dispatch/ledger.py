"""Records which engine holds which batch, so that the batches of a lost engine can be replayed."""

from collections.abc import Iterable

from service.dispatch.utterance import Utterance


class Ledger:
    """The batches that engines hold. Each utterance comes out exactly once: answered, or from a lost engine."""

    def __init__(self) -> None:
        self._held: dict[object, dict[int, list[Utterance]]] = {}
        self._batches = 0

    def hand_over(self, engine: object, batch: Iterable[Utterance]) -> int:
        """Record that an engine holds a batch; return a new number for it."""
        self._batches += 1
        self._held.setdefault(engine, {})[self._batches] = list(batch)
        return self._batches

    def held(self, engine: object) -> list[Utterance]:
        """Return the utterances that an engine holds."""
        return [utterance for batch in self._held.get(engine, {}).values() for utterance in batch]

    def take_back(self, engine: object, number: int) -> list[Utterance]:
        """Remove an answered batch, and return its utterances."""
        return self._held.get(engine, {}).pop(number, [])

    def lose(self, engine: object) -> list[list[Utterance]]:
        """Remove a lost engine, and return its batches."""
        return list(self._held.pop(engine, {}).values())
