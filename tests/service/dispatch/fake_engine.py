"""A dispatcher for tests, and an engine that answers when a test says so."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec.structs import replace as replace_struct

from audio.recording import Recording
from audio.segment.cuts import CutBlock
from audio.segment.segmenter import Segment, SegmentRule
from service.dispatch import cut_recording
from service.dispatch.admission import AdmissionLimits
from service.dispatch.catalog import Catalog
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.utterance import Lane, Part
from service.dispatch.window import Window
from service.engine.protocol import Batch, Failure, FailureKind, ModelInfo, Ready, Result
from service.metrics import Metrics
from transcripts.transcript import Transcript

LIMITS = AdmissionLimits(
    max_requests=100,
    max_stored_bytes=1000,
    max_queued_audio_seconds=1000.0,
    max_wait_seconds=60.0,
    timeout_seconds=600.0,
)
RATE = 100


def counted(dispatcher: Dispatcher, name: str, **labels: str) -> float:
    """A metric of a dispatcher, as it would be scraped; 0 before it was first counted."""
    dispatcher.update_gauges()
    return dispatcher.metrics.registry.get_sample_value(f"steno_{name}", labels) or 0.0


def is_free(window: Window) -> bool:
    """Whether nothing holds room in a window."""
    room = window.acquire(window.samples)
    is_granted = room.done()
    window.release(room)
    return is_granted


LANE = Lane("m")
READY = Ready("m", ModelInfo("stub", "none", "float32"), [], RATE, 120.0, 1, 100.0, 1000, 1.0, 1.0)
OTHER = replace_struct(READY, model="other", rtfx=10.0)


@dataclass(eq=False)
class FakeEngine:
    """Keeps its batches until the test answers them."""

    name: str = "cpu"
    slots: int = 1
    models: dict[str, Ready] = field(default_factory=lambda: {"m": READY, "other": OTHER})
    batches: dict[int, list] = field(default_factory=dict)
    asked: list = field(default_factory=list)
    beside: list[int] = field(default_factory=list)

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.batches)

    def take_slot(self, number: int) -> None:
        self.batches[number] = []

    async def send(self, batch: Batch, utterances: list) -> None:
        self.asked.append((batch.model, batch.decoder))
        self.beside.append(batch.engines - 1)
        self.batches[batch.number] = utterances

    def answer(self, dispatcher: Dispatcher) -> None:
        """Answer the last batch, if it has come: its slot is taken a moment before."""
        number, utterances = self.batches.popitem()
        if not utterances:
            self.batches[number] = utterances
            return
        heard = [Transcript(str(samples[0]), [], [], []) for samples in utterances]
        padded_seconds = len(utterances) * max(map(len, utterances)) / RATE
        dispatcher.engine_answered(self, Result(number, heard, 0.1, padded_seconds))

    def fail(self, dispatcher: Dispatcher, kind: FailureKind) -> None:
        number, _ = self.batches.popitem()
        dispatcher.engine_answered(self, Failure(number, kind, "broken"))


def dispatcher(max_queued_audio_seconds: float = 1000.0, models: tuple[str, ...] = ("m",)) -> Dispatcher:
    limits = replace(LIMITS, max_queued_audio_seconds=max_queued_audio_seconds)
    catalog = Catalog(dict.fromkeys(models, ""))
    front = Dispatcher(catalog, edges=[2.0, 10.0], limits=limits, metrics=Metrics())
    front.catalog.ready(READY)
    front.catalog.ready(OTHER)
    return front


def ask(
    front: Dispatcher, value: float, seconds: float = 1.0, timeout: float = 60.0, lane: Lane = LANE
) -> asyncio.Task:
    samples = np.full(int(seconds * RATE), value, np.float32)
    deadline = asyncio.get_running_loop().time() + timeout
    return asyncio.create_task(front.transcribe(Part(samples, lane, object(), deadline)))


async def settle() -> None:
    """Let every task that can run do so, and every message arrive."""
    for _ in range(50):
        await asyncio.sleep(0)


class Immediately(ThreadPoolExecutor):
    """Stands in for threads and does their work at once, so that a test knows when it is done."""

    def submit(self, work, *arguments):
        future = Future()
        future.set_result(work(*arguments))
        return future


@contextmanager
def recorded(
    monkeypatch,
    seconds: float,
    *cuts: tuple[float, float],
    rule: SegmentRule | None = SegmentRule(longest=10.0),  # noqa: B008
    seconds_in_memory: float = 1.0,
    error: Exception | None = None,
    scale: float = 1.0,
):
    """A recording in which each second has its number, times a scale, as samples; cut as given, one a block."""

    def blocks(recording, detector, rule):
        for start, stop in cuts:
            yield CutBlock([Segment(int(start * RATE), int(stop * RATE))], np.empty(0, np.float32))
        if error is not None:
            raise error

    monkeypatch.setattr(cut_recording, "cuts", blocks)
    with Recording(RATE, seconds_in_memory) as recording:
        recording.append(np.repeat(np.arange(seconds, dtype=np.float32) * np.float32(scale), RATE).tobytes())
        yield CutRecording(recording, rule, detector=None, threads=Immediately())
