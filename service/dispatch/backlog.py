"""The audio that was accepted and has no transcript yet."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(slots=True, eq=False)
class BacklogEntry:
    """The audio of an accepted recording."""

    model: str
    unanswered_seconds: float  # audio without a transcript; only `Backlog` changes it
    unstaged_seconds: float  # audio that is not in the batcher yet: a long recording enters it part by part
    is_background: bool  # whether it is a job's, which does not count in predicted waits
    seconds: float  # its length; while it arrives, so far
    deadline: float = math.inf  # monotonic time by which it needs its transcript


class Backlog:
    """All accepted recordings.

    Sums are kept up to date, because each request reads them and a thousand may be under way.
    """

    def __init__(self, turn_seconds: float) -> None:
        self.seconds = 0.0  # audio without a transcript, except that of jobs
        self.turns: dict[str, float] = {}  # ``seconds`` by model id, with at most one turn of each recording
        self._turn_seconds = turn_seconds
        self.entries: set[BacklogEntry] = set()  # the recordings

    def unstaged_seconds(self, model: str) -> float:
        """Return the seconds of audio for a model that are not in the batcher yet."""
        return sum(entry.unstaged_seconds for entry in self.entries if entry.model == model)

    def add(self, model: str, seconds: float, *, is_background: bool = False) -> BacklogEntry:
        """Add a recording."""
        entry = BacklogEntry(model, seconds, seconds, is_background, seconds)
        self.entries.add(entry)
        if is_background:
            return entry
        self.seconds += seconds
        self.turns[model] = self.turns.get(model, 0.0) + self._turn(seconds)
        return entry

    def answer(self, entry: BacklogEntry, seconds: float) -> None:
        """Subtract ``seconds`` of a recording that have a transcript now."""
        before, after = entry.unanswered_seconds, entry.unanswered_seconds - seconds
        entry.unanswered_seconds = after
        if entry.is_background:
            return
        self.seconds -= seconds
        self.turns[entry.model] += self._turn(after) - self._turn(before)

    def remove(self, entry: BacklogEntry) -> None:
        """Remove a recording that was answered or given up."""
        self.entries.remove(entry)
        if not entry.is_background:
            self.seconds -= entry.unanswered_seconds
            self.turns[entry.model] -= self._turn(entry.unanswered_seconds)
        if all(one.is_background for one in self.entries):  # the sums hold only rounding errors
            self.seconds = 0.0
            self.turns.clear()

    def _turn(self, seconds: float) -> float:
        return min(seconds, self._turn_seconds)


class RoundRobin:
    """When recordings that take turns will be done.

    Args:
        waiting: for each recording, its seconds of audio without a transcript, and the RTFx of its model.
    """

    def __init__(self, waiting: Iterable[tuple[float, float]]) -> None:
        shortest_first = sorted(waiting)
        self._lengths = [length for length, _ in shortest_first]
        self._work = [0.0, *accumulate(length / rtfx for length, rtfx in shortest_first)]
        self._paces = [0.0, *accumulate(1 / rtfx for _, rtfx in shortest_first)]

    def seconds(self, length: float) -> float:
        """Return the seconds until each has had a transcript of this much audio, or of all its own."""
        shorter = bisect_right(self._lengths, length)
        return self._work[shorter] + length * (self._paces[-1] - self._paces[shorter])
