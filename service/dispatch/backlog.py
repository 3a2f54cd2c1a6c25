"""The audio that was accepted and has no transcript yet."""

from collections.abc import Mapping


class Accepted:
    """The audio of a recording behind gate 2.

    Attributes:
        model: Id of the model that it is for.
        unanswered_seconds: Has no transcript yet.
        unstaged_seconds: Of that, waits outside the batcher: a long recording comes into it part by part.
    """

    __slots__ = ("_backlog", "model", "unanswered_seconds", "unstaged_seconds")

    def __init__(self, backlog: "Backlog", model: str, seconds: float) -> None:
        self._backlog = backlog
        self.model = model
        self.unanswered_seconds = self.unstaged_seconds = seconds

    def answer(self, seconds: float) -> None:
        """Count what has a transcript now."""
        self._backlog.answer(self, seconds)


class Backlog:
    """All recordings behind gate 2. Its sums are kept: every request asks for them, and a thousand may be under way.

    Args:
        turn_seconds: Audio that a recording may have in a turn.

    Attributes:
        seconds: Audio without a transcript.
    """

    def __init__(self, turn_seconds: float) -> None:
        self.seconds = 0.0
        self._turn_seconds = turn_seconds
        self._turns: dict[str, float] = {}
        self._recordings: set[Accepted] = set()

    @property
    def turns(self) -> Mapping[str, float]:
        """Audio-seconds of one turn of each recording at most, by the model's id."""
        return self._turns

    def unstaged_seconds(self, model: str) -> float:
        """Return the audio for a model that is not in the batcher yet."""
        return sum(recording.unstaged_seconds for recording in self._recordings if recording.model == model)

    def add(self, model: str, seconds: float) -> Accepted:
        """Count a recording."""
        recording = Accepted(self, model, seconds)
        self._recordings.add(recording)
        self.seconds += seconds
        self._turns[model] = self._turns.get(model, 0.0) + self._turn(seconds)
        return recording

    def answer(self, recording: Accepted, seconds: float) -> None:
        """Count what has a transcript now."""
        before, after = recording.unanswered_seconds, recording.unanswered_seconds - seconds
        recording.unanswered_seconds = after
        self.seconds -= seconds
        self._turns[recording.model] += self._turn(after) - self._turn(before)

    def remove(self, recording: Accepted) -> None:
        """Count a recording no longer, answered or given up."""
        self._recordings.remove(recording)
        self.seconds -= recording.unanswered_seconds
        self._turns[recording.model] -= self._turn(recording.unanswered_seconds)
        if not self._recordings:  # what is left is what rounding left
            self.seconds = 0.0
            self._turns.clear()

    def _turn(self, seconds: float) -> float:
        return min(seconds, self._turn_seconds)
