"""The audio that was accepted and has no transcript yet."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Accepted:
    """The audio of a recording behind gate 2.

    Attributes:
        model: id of the model that it is for.
        unanswered_seconds: has no transcript yet; changed by `Backlog.answer`.
        unstaged_seconds: of that, waits outside the batcher: a long recording comes into it part by part.
        is_background: it stands before nobody, and takes room of its own.
    """

    model: str
    unanswered_seconds: float
    unstaged_seconds: float
    is_background: bool = False


class Backlog:
    """All recordings behind gate 2. Its sums are kept: every request asks for them, and a thousand may be under way.

    Args:
        turn_seconds: audio that a recording may have in a turn.

    Attributes:
        seconds: audio without a transcript, without what is in the background.
        turns: of that one turn of each recording at most, by the model's id.
    """

    def __init__(self, turn_seconds: float) -> None:
        self.seconds = 0.0
        self.turns: dict[str, float] = {}
        self._turn_seconds = turn_seconds
        self._recordings: set[Accepted] = set()

    def unstaged_seconds(self, model: str) -> float:
        """Return the audio for a model that is not in the batcher yet."""
        return sum(recording.unstaged_seconds for recording in self._recordings if recording.model == model)

    def add(self, model: str, seconds: float, *, is_background: bool = False) -> Accepted:
        """Count a recording."""
        recording = Accepted(model, seconds, seconds, is_background)
        self._recordings.add(recording)
        if is_background:
            return recording
        self.seconds += seconds
        self.turns[model] = self.turns.get(model, 0.0) + self._turn(seconds)
        return recording

    def answer(self, recording: Accepted, seconds: float) -> None:
        """Count what has a transcript now."""
        before, after = recording.unanswered_seconds, recording.unanswered_seconds - seconds
        recording.unanswered_seconds = after
        if recording.is_background:
            return
        self.seconds -= seconds
        self.turns[recording.model] += self._turn(after) - self._turn(before)

    def remove(self, recording: Accepted) -> None:
        """Count a recording no longer, answered or given up."""
        self._recordings.remove(recording)
        if not recording.is_background:
            self.seconds -= recording.unanswered_seconds
            self.turns[recording.model] -= self._turn(recording.unanswered_seconds)
        if not any(not one.is_background for one in self._recordings):  # what is left is what rounding left
            self.seconds = 0.0
            self.turns.clear()

    def _turn(self, seconds: float) -> float:
        return min(seconds, self._turn_seconds)
