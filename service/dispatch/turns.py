"""Turns between callers: deficit round robin, so that nobody's hour of audio stands before another's minute.

Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", 1995. In each turn a caller may have so many
seconds of audio, and what it uses beyond that counts against its next one. An utterance knows its turn as it arrives.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from service.dispatch.utterance import Utterance


@dataclass(slots=True)
class _Account:
    turn: int
    used_seconds: float = 0.0


class Turns:
    """Which turn each utterance has.

    Args:
        seconds: audio that a caller may have in a turn; at least the longest utterance.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._current = 0
        self._accounts: dict[Hashable, _Account] = {}

    def take(self, caller: Hashable, seconds: float) -> int:
        """Return the turn of a caller's next utterance; who was away has no turns saved up."""
        account = self._accounts.setdefault(caller, _Account(self._current))
        if account.turn < self._current:
            account.turn, account.used_seconds = self._current, 0.0
        turn = account.turn
        turns, account.used_seconds = divmod(account.used_seconds + seconds, self._seconds)
        account.turn += int(turns)
        return turn

    def update(self, waiting: Collection[Utterance]) -> None:
        """Let the current turn be the first that somebody waits for, and forget the callers whom it has caught up."""
        self._current = min((utterance.turn for utterance in waiting), default=self._current)
        callers = {utterance.caller for utterance in waiting}
        self._accounts = {
            caller: account
            for caller, account in self._accounts.items()
            if callers and (caller in callers or account.turn > self._current)
        }
