"""One piece of audio on its way through the dispatcher, and what may share a batch with it."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.protocol import NOTHING_ASKED, Prompt, Transcript
from service.tracing import Trace, current


class Lane(NamedTuple):
    """What runs together: utterances for one decoder of one model.

    Attributes:
        model: the model's id.
        decoder: one of its decoders; None is its first.
    """

    model: str
    decoder: str | None = None


@dataclass(slots=True, eq=False)
class Utterance:
    """Decoded audio that waits for its transcript.

    Attributes:
        number: ascends in the order of acceptance.
        samples: mono audio at the model's rate, (samples,), float32. Kept until answered, so that it can be replayed.
        seconds: its length.
        arrived: monotonic time of acceptance.
        answer: resolved exactly once, with a transcript or an error; cancelled when nobody waits any more.
        lane: which model and decoder it is for.
        caller: who takes turns with others: the name of an API key, or the upload itself.
        turn: in which of them it may run; -1 before it has come to the batcher.
        passed_over: batches that were led by a later arrival since its caller last had something in one.
        engines_lost: engines that died with it.
        misfits: batches with it that did not fit the device.
        alone: it shared a batch that failed or was lost, and may be the cause: it runs by itself from now on.
        sent: monotonic time when its batch left for an engine, the last time if it was replayed.
        prompt: what is asked for.
        is_background: nobody waits for it now: it goes after all that somebody waits for.
        trace: of the request that it belongs to, if it is traced.
    """

    number: int
    samples: npt.NDArray[np.float32]
    seconds: float
    arrived: float
    answer: asyncio.Future[Transcript] = field(repr=False)
    caller: Hashable
    lane: Lane
    turn: int = -1
    passed_over: int = 0
    engines_lost: int = 0
    misfits: int = 0
    alone: bool = False
    sent: float = 0.0
    prompt: Prompt = NOTHING_ASKED
    is_background: bool = False
    trace: Trace | None = field(default_factory=current, repr=False)

    @property
    def writes_times(self) -> bool:
        """Whether the model is to write two times with every word: a text is two to three times as long then."""
        return self.prompt.timestamps
