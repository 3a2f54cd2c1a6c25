"""Turns between callers by deficit round robin, so that one caller's hour of audio does not delay another's minute.

Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", 1995. A turn has a number of seconds of
audio, and what a caller uses beyond that counts against its next turn. An utterance gets its turn when it arrives.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from service.dispatch.utterance import Utterance


@dataclass(slots=True)
class _Account:
    turn: int
    used_seconds: float = 0.0


class Turns:
    """Assigns turns to utterances.

    Args:
        seconds: audio of a turn; at least the longest utterance.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._current = 0
        self._accounts: dict[Hashable, _Account] = {}

    def take(self, caller: Hashable, seconds: float) -> int:
        """Return the turn of a caller's next utterance; an idle caller saves up no turns."""
        account = self._accounts.setdefault(caller, _Account(self._current))
        if account.turn < self._current:
            account.turn, account.used_seconds = self._current, 0.0
        turn = account.turn
        turns, account.used_seconds = divmod(account.used_seconds + seconds, self._seconds)
        account.turn += int(turns)
        return turn

    def update(self, waiting: Collection[Utterance]) -> None:
        """Move the current turn to the first that waits, and forget callers with nothing waiting and no later turn.

        If nothing waits, forget all.
        """
        self._current = min((utterance.turn for utterance in waiting), default=self._current)
        callers = {utterance.caller for utterance in waiting}
        self._accounts = {
            caller: account
            for caller, account in self._accounts.items()
            if callers and (caller in callers or account.turn > self._current)
        }
