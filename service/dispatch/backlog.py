"""The audio that was accepted and has no transcript yet."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Accepted:
    """The audio of a recording behind gate 2.

    Attributes:
        model: Id of the model that it is for.
        unanswered_seconds: Has no transcript yet; changed by `Backlog.answer`.
        unstaged_seconds: Of that, waits outside the batcher: a long recording comes into it part by part.
    """

    model: str
    unanswered_seconds: float
    unstaged_seconds: float


class Backlog:
    """All recordings behind gate 2. Its sums are kept: every request asks for them, and a thousand may be under way.

    Args:
        turn_seconds: Audio that a recording may have in a turn.

    Attributes:
        seconds: Audio without a transcript.
        turns: Of that one turn of each recording at most, by the model's id.
    """

    def __init__(self, turn_seconds: float) -> None:
        self.seconds = 0.0
        self.turns: dict[str, float] = {}
        self._turn_seconds = turn_seconds
        self._recordings: set[Accepted] = set()

    def unstaged_seconds(self, model: str) -> float:
        """Return the audio for a model that is not in the batcher yet."""
        return sum(recording.unstaged_seconds for recording in self._recordings if recording.model == model)

    def add(self, model: str, seconds: float) -> Accepted:
        """Count a recording."""
        recording = Accepted(model, seconds, seconds)
        self._recordings.add(recording)
        self.seconds += seconds
        self.turns[model] = self.turns.get(model, 0.0) + self._turn(seconds)
        return recording

    def answer(self, recording: Accepted, seconds: float) -> None:
        """Count what has a transcript now."""
        before, after = recording.unanswered_seconds, recording.unanswered_seconds - seconds
        recording.unanswered_seconds = after
        self.seconds -= seconds
        self.turns[recording.model] += self._turn(after) - self._turn(before)

    def remove(self, recording: Accepted) -> None:
        """Count a recording no longer, answered or given up."""
        self._recordings.remove(recording)
        self.seconds -= recording.unanswered_seconds
        self.turns[recording.model] -= self._turn(recording.unanswered_seconds)
        if not self._recordings:  # what is left is what rounding left
            self.seconds = 0.0
            self.turns.clear()

    def _turn(self, seconds: float) -> float:
        return min(seconds, self._turn_seconds)
