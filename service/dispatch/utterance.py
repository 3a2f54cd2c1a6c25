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
    """The utterances that may share a batch: those for one decoder of one model.

    Attributes:
        model: the model's id.
        decoder: one of the model's decoders; None: its first.
    """

    model: str
    decoder: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a recording, or a short recording whole.

    Attributes:
        samples: mono audio at the model's rate, (samples,).
        lane: the model, and which of its decoders.
        caller: the name of an API key, or an upload without one; callers take turns.
        deadline: time of the event loop by which the answer is needed; None: no deadline.
        prompt: its prompt.
        is_background: whether it is a job's; others go first.
        recording_seconds: length of its recording; 0: its own length.
    """

    samples: Samples
    lane: Lane
    caller: Hashable
    deadline: float | None = None
    prompt: Prompt = DEFAULT_PROMPT
    is_background: bool = False
    recording_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Utterance:
    """Decoded audio that waits for its transcript, or for the probabilities of its languages.

    Attributes:
        number: ascends in the order of acceptance.
        samples: mono audio at the model's rate, (samples,), float32. Kept until answered, so that it can be replayed.
        seconds: length.
        arrived: monotonic time of acceptance.
        answer: resolved exactly once, with an engine's answer or an error; cancelled when it is no longer needed.
        caller, lane, prompt, is_background, recording_seconds: as in `Part`.
        turn: the turn in which it may lead a batch; -1 until the batcher assigns one.
        passed_over: number of batches that later arrivals led while it waited.
        engines_lost: number of engines that died while they held it.
        misfits: number of batches with it that did not fit the device.
        alone: whether it must run alone, because it was in a batch that failed or was lost, and may be the cause.
        sent: monotonic time when its last batch was sent to an engine.
    """

    number: int
    samples: Samples
    seconds: float
    arrived: float
    answer: asyncio.Future[Transcript | Probabilities] = field(repr=False)
    caller: Hashable
    lane: Lane
    turn: int = -1
    passed_over: int = 0
    engines_lost: int = 0
    misfits: int = 0
    alone: bool = False
    sent: float = 0.0
    prompt: Prompt = DEFAULT_PROMPT
    is_background: bool = False
    recording_seconds: float = 0.0
