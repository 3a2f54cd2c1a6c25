"""Deciding on the languages of a recording's parts in their order, in whatever order they are identified."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import NamedTuple

from service.dispatch.utterance import Lane
from transcripts.spoken_language import LanguageDecision, Probabilities, Spoken


@dataclass(frozen=True, slots=True)
class Identification:
    """How the language of a recording is identified."""

    lane: Lane  # the language identifier
    rate: int  # rate of the audio that it takes, in Hz
    possible: tuple[str, ...]  # the languages that may be chosen, at least one
    is_exhaustive: bool  # whether no other language is spoken; see `LanguageDecision`


class Identified(NamedTuple):
    """The identified language of a part."""

    part: Spoken  # the language that it was transcribed in
    recording: Spoken  # the language of the recording up to this part
    seconds: float  # time until it was decided on, with the wait for the parts before it


class PartLanguages:
    """The languages of a recording, decided part by part in the order of ``next_turn``."""

    def __init__(self, identification: Identification) -> None:
        self.lane = identification.lane
        self.rate = identification.rate
        self._decision = LanguageDecision(identification.possible, identification.is_exhaustive)
        self._last: asyncio.Future[None] | None = None

    def next_turn(self) -> "PartTurn":
        """Return the turn of the next part."""
        before, self._last = self._last, asyncio.get_running_loop().create_future()
        return PartTurn(self._decision, before, self._last)


@dataclass(frozen=True, slots=True)
class PartTurn:
    """The turn of a part, which comes after those of the parts before it."""

    _decision: LanguageDecision
    _before: "asyncio.Future[None] | None"
    _own: "asyncio.Future[None]"

    async def decide(self, identifying: Awaitable[Probabilities], seconds: float) -> Identified:
        """Return the language of a part of ``seconds``, once it is identified and the parts before it are decided on.

        A part that fails or is cancelled counts as decided on.
        """
        began = time.monotonic()
        try:
            probabilities = await identifying
            if self._before is not None:
                await asyncio.wait({self._before})
            part = self._decision.add(probabilities, seconds)
            assert self._decision.whole
            return Identified(part, self._decision.whole, time.monotonic() - began)
        finally:
            self._own.set_result(None)
