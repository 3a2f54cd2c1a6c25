"""Turns between callers by deficit round robin, so that one caller's hour of audio does not delay another's minute.

Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", 1995. A turn has a number of seconds of
audio, and what a caller uses beyond that counts against its next turn. An utterance gets its turn when it arrives.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from service.dispatch.utterance import Utterance


@dataclass(slots=True)
class _Account:
    turn: int
    used_seconds: float = 0.0


class Turns:
    """Assigns turns to utterances.

    What waits is counted, because each batch asks for it and thousands may wait.

    Args:
        seconds: audio of a turn; at least the longest utterance.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._current = 0
        self._accounts: dict[Hashable, _Account] = {}
        self._callers: dict[Hashable, int] = {}  # utterances that wait, by caller
        self._turns: dict[int, int] = {}  # and by turn
        self._idle: set[Hashable] = set()  # callers with nothing waiting that may have an account

    def take(self, caller: Hashable, seconds: float) -> int:
        """Return the turn of a caller's next utterance; an idle caller saves up no turns."""
        account = self._accounts.setdefault(caller, _Account(self._current))
        if caller not in self._callers:
            self._idle.add(caller)
        if account.turn < self._current:
            account.turn, account.used_seconds = self._current, 0.0
        turn = account.turn
        turns, account.used_seconds = divmod(account.used_seconds + seconds, self._seconds)
        account.turn += int(turns)
        return turn

    def add(self, utterance: Utterance) -> None:
        """Count an utterance that waits."""
        self._callers[utterance.caller] = self._callers.get(utterance.caller, 0) + 1
        self._turns[utterance.turn] = self._turns.get(utterance.turn, 0) + 1
        self._idle.discard(utterance.caller)

    def remove(self, utterance: Utterance) -> None:
        """Count an utterance no longer."""
        self._turns[utterance.turn] -= 1
        if not self._turns[utterance.turn]:
            del self._turns[utterance.turn]
        self._callers[utterance.caller] -= 1
        if not self._callers[utterance.caller]:
            del self._callers[utterance.caller]
            self._idle.add(utterance.caller)

    def update(self) -> None:
        """Move the current turn to the first that waits, and forget callers with nothing waiting and no later turn.

        If nothing waits, forget all.
        """
        self._current = min(self._turns, default=self._current)
        for caller in list(self._idle):
            account = self._accounts.get(caller)
            if account is None or not self._turns or account.turn <= self._current:
                self._accounts.pop(caller, None)
                self._idle.remove(caller)
