"""A part of a recording, the utterance that it becomes in the dispatcher, and the lane where the utterance waits."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from audio.samples import Samples
from transcripts.prompt import DEFAULT_PROMPT, Prompt
from transcripts.spoken_language import Probabilities
from transcripts.transcript import Transcript


class Lane(NamedTuple):
    """The utterances that may share a batch: those for one decoder of one model."""

    model: str
    decoder: str | None = None  # one of the model's decoders; None: its first


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a recording, or a short recording whole."""

    samples: Samples  # mono audio at the model's rate, (samples,)
    lane: Lane  # the model, and which of its decoders
    caller: Hashable  # the name of an API key, or an upload without one; callers take turns
    deadline: float | None = None  # time of the event loop by which the answer is needed; None: no deadline
    prompt: Prompt = DEFAULT_PROMPT
    is_background: bool = False  # whether it is a job's; others go first
    recording_seconds: float = 0.0  # length of its recording; 0: its own length


@dataclass(slots=True, eq=False)
class Utterance:
    """Decoded audio that waits for its transcript, or for the probabilities of its languages."""

    number: int  # ascends in the order of acceptance
    part: Part  # kept until it is answered, so that it can be replayed
    seconds: float  # of its samples
    arrived: float  # monotonic time of acceptance
    # Resolved exactly once, with an engine's answer or an error; cancelled when it is no longer needed.
    answer: asyncio.Future[Transcript | Probabilities] = field(repr=False)
    turn: int = -1  # the turn in which it may lead a batch; -1 until the batcher assigns one
    passed_over: int = 0  # number of batches that later arrivals led while it waited
    engines_lost: int = 0  # number of engines that died while they held it
    misfits: int = 0  # number of batches with it that did not fit the device
    alone: bool = False  # whether it must run alone, because it was in a batch that failed or was lost
    sent: float = 0.0  # monotonic time when its last batch was sent to an engine
