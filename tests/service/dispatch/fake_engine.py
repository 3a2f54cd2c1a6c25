"""A dispatcher for tests, and an engine that answers when it is told to."""

import asyncio
from dataclasses import dataclass, field, replace

import numpy as np

from service.dispatch.admission import AdmissionLimits
from service.dispatch.batcher import BatchPolicy
from service.dispatch.dispatcher import Dispatcher
from service.engine.protocol import Failure, FailureKind, Ready, Result, Transcript
from service.metrics import Metrics

LIMITS = AdmissionLimits(
    max_requests=100, max_stored_bytes=1000, max_queued_audio_seconds=1000.0, max_wait_seconds=60.0
)
RATE = 100
READY = Ready({"model": "m"}, [], RATE, 120.0, 1, 100.0, 1.0, 1.0)


@dataclass(eq=False)
class FakeEngine:
    """Keeps its batches until the test answers them."""

    name: str = "cpu"
    ready: Ready | None = READY
    batches: dict[int, list] = field(default_factory=dict)

    @property
    def free_places(self) -> int:
        return self.ready.places - len(self.batches)

    def take_place(self, number: int) -> None:
        self.batches[number] = []

    async def transcribe(self, number: int, utterances: list, prompts: list) -> None:
        self.batches[number] = utterances

    def answer(self, dispatcher: Dispatcher) -> None:
        number, utterances = self.batches.popitem()
        heard = [Transcript(str(samples[0]), [], [], []) for samples in utterances]
        dispatcher.engine_answered(self, Result(number, heard, 0.1, len(utterances) * 1.0))

    def fail(self, dispatcher: Dispatcher, kind: FailureKind) -> None:
        number, _ = self.batches.popitem()
        dispatcher.engine_answered(self, Failure(number, kind, "broken"))


def dispatcher(max_queued_audio_seconds: float = 1000.0) -> Dispatcher:
    limits = replace(LIMITS, max_queued_audio_seconds=max_queued_audio_seconds)
    front = Dispatcher(edges=[2.0, 10.0], policy=BatchPolicy(), limits=limits, metrics=Metrics())
    front.model = READY
    return front


def ask(front: Dispatcher, value: float, seconds: float = 1.0, timeout: float = 60.0) -> asyncio.Task:
    samples = np.full(int(seconds * RATE), value, np.float32)
    return asyncio.create_task(front.transcribe(samples, object(), asyncio.get_running_loop().time() + timeout))


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario) -> None:
    asyncio.run(scenario())
