"""What gate 2 accepts is answered in time: recordings of minutes to hours on a slow engine, in virtual time."""

import asyncio
import random
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from audio.segment.cuts import CutBlock
from audio.segment.segmenter import Segment, SegmentRule
from service.dispatch import cut_recording
from service.dispatch.admission import Admission, AdmissionLimits
from service.dispatch.backlog import RoundRobin
from service.dispatch.catalog import Catalog
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.errors import OverloadedError
from service.dispatch.recordings import Options, Recordings
from service.engine.protocol import Result
from service.metrics import Metrics
from tests.service.dispatch.fake_engine import LANE, READY, FakeEngine, Immediately
from tests.service.dispatch.virtual_time import run
from transcripts.transcript import Transcript

RATE = 10
RTFX = 3.0
TIMEOUT = 600.0
TURN = 40
LIMITS = AdmissionLimits(1000, 1 << 40, 1e9, 1e9, TIMEOUT)
HOUR = 3600.0


@dataclass
class Silence:
    """Stands in for a recording, because hours of samples would take time."""

    samples: int
    rate: int = RATE

    def __len__(self) -> int:
        return self.samples

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.zeros(stop - start, np.float32)


class SlowEngine(FakeEngine):
    """Computes one batch after the other, three times as fast as people speak."""

    async def send(self, batch, utterances) -> None:
        await super().send(batch, utterances)
        padded = len(utterances) * max(map(len, utterances)) / RATE
        asyncio.get_running_loop().call_later(padded / RTFX, self.finish, batch.number, padded)

    def finish(self, number: int, padded: float) -> None:
        heard = [Transcript("a", [], [], []) for _ in self.batches.pop(number)]
        self.dispatcher.engine_answered(self, Result(number, heard, padded / RTFX, padded))


def served(monkeypatch) -> Recordings:
    """The queue before a slow engine; recordings are cut every 40 s."""
    ready = replace_struct(READY, rtfx=RTFX, sample_rate=RATE)
    loop = asyncio.get_running_loop()
    front = Dispatcher(
        Catalog({"m": ""}),
        edges=[10.0, TURN],
        limits=LIMITS,
        metrics=Metrics(),
        clock=loop.time,
    )
    engine = SlowEngine(models={"m": ready})
    engine.dispatcher = front
    front.catalog.ready(ready)
    front.engine_ready(engine, ready)

    def cuts(recording, detector, rule):
        ends = [*range(0, len(recording), TURN * RATE), len(recording)]
        for start, stop in pairwise(ends):
            yield CutBlock([Segment(start, stop)], np.empty(0, np.float32))

    monkeypatch.setattr(cut_recording, "cuts", cuts)
    return Recordings(front, Immediately())


async def transcribed(recordings: Recordings, seconds: float) -> bool:
    """Transcribe a recording; return whether it was accepted. An accepted one that is not answered fails."""
    source = CutRecording(Silence(int(seconds * RATE)), SegmentRule(float(TURN)), detector=None, threads=Immediately())
    try:
        async with aclosing(
            recordings.transcribe(source, Options(str(id(source)), LANE, most_seconds=TIMEOUT))
        ) as answers:
            async for _ in answers:
                pass
    except OverloadedError:
        return False
    return True


def test_of_ten_hours_at_once_as_many_are_accepted_as_are_done_in_time(monkeypatch):
    """At an RTFx of 3, three take 3,600 s of the 4,200 s that each has, and a fourth would take 4,800 s."""

    async def scenario() -> None:
        recordings = served(monkeypatch)
        accepted = await asyncio.gather(*(transcribed(recordings, HOUR) for _ in range(10)))
        assert accepted == [True] * 3 + [False] * 7
        assert asyncio.get_running_loop().time() == pytest.approx(HOUR, rel=0.01)

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_later_what_was_accepted_is_answered_in_time(seed, monkeypatch):
    """For ten hours, twice as much comes as can be transcribed, and the engine is kept busy."""

    async def scenario() -> None:
        recordings, chance, loop = served(monkeypatch), random.Random(seed), asyncio.get_running_loop()
        lengths = (30.0, 120.0, 600.0, 600.0, HOUR)
        began: list[tuple[float, asyncio.Task]] = []
        while loop.time() < 10 * HOUR:
            seconds = chance.choice(lengths)
            began.append((seconds, asyncio.create_task(transcribed(recordings, seconds))))
            await asyncio.sleep(chance.expovariate(2 * RTFX * len(lengths) / sum(lengths)))
        accepted = await asyncio.gather(*(task for _, task in began))
        audio = sum(seconds for (seconds, _), is_accepted in zip(began, accepted, strict=True) if is_accepted)
        assert audio > 0.85 * RTFX * 10 * HOUR
        assert not all(accepted)

    run(scenario())


LENGTHS = st.lists(st.floats(1, 4 * HOUR), min_size=1, max_size=20)


@given(LENGTHS, st.floats(0.5, 100))
def test_the_time_is_that_of_turns_as_small_as_can_be(lengths, rtfx):
    round_robin = RoundRobin((length, rtfx) for length in lengths)

    for length in lengths:
        assert round_robin.seconds(length) == pytest.approx(sum(min(length, other) for other in lengths) / rtfx)
    assert round_robin.seconds(max(lengths)) == pytest.approx(sum(lengths) / rtfx)


def gates(clock=lambda: 0.0, **limits) -> Admission:
    admission = Admission(AdmissionLimits(1000, 1 << 40, 1e9, 1e9, TIMEOUT, **limits), TURN, clock=clock)
    admission.rtfx, admission.is_loaded = {"m": RTFX}, True
    return admission


def test_a_short_recording_is_accepted_behind_hours():
    admission = gates()

    with admission.accept("m", HOUR), admission.accept("m", HOUR), admission.accept("m", HOUR):
        with admission.accept("m", 120.0), admission.accept("m", 30.0):
            pass
        with pytest.raises(OverloadedError, match="would take 5280 s, and may take 4200 s") as refusal:
            admission.accept("m", HOUR).__enter__()
    assert refusal.value.retry_after == 60


def test_a_recording_that_would_make_an_accepted_one_late_is_refused():
    now = 0.0
    admission = gates(lambda: now)

    with admission.accept("m", HOUR):
        now = 2700.0  # 1,500 s are left for it, of which it needs 1,200
        with admission.accept("m", 290.0):
            with pytest.raises(OverloadedError, match="others would not be done in time"):
                admission.accept("m", 290.0).__enter__()
            with admission.accept("m", 30.0):  # a clip makes no difference
                pass


def test_one_that_is_late_anyway_keeps_nobody_out():
    now = 0.0
    admission = gates(lambda: now)

    with admission.accept("m", HOUR):
        now = 4000.0
        with admission.accept("m", 600.0):
            pass


def test_alone_a_recording_is_accepted_whatever_it_takes_and_jobs_always_are():
    admission = gates(takes_jobs=True)
    admission.rtfx["m"] = 0.5

    with admission.accept("m", 2 * HOUR):
        with pytest.raises(OverloadedError, match="a job may take longer"):
            admission.accept("m", HOUR).__enter__()
        with admission.accept("m", HOUR, is_background=True):
            pass
