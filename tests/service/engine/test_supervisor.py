import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.descriptor import unnamed_file
from benchmarks.stub_engine import CRASH_SAMPLES, STUB_ENGINE, transcript
from service.engine.kept import barred
from service.engine.protocol import Batch, FailureKind, Heartbeat, Load, ModelInfo, Ready, Result
from service.engine.supervisor import Engine, EngineStartError, Loss, ModelLoadError, Supervisor
from service.settings import Settings
from tests.asynchronous import asynchronous
from tests.service.dispatch.virtual_time import Clock
from transcripts.prompt import DEFAULT_PROMPT

STUB = {"device": "cpu", "longest_seconds": 2.0, "module": STUB_ENGINE}


@dataclass
class Listener:
    """Queues the supervisor's events, so that a scenario can wait for them."""

    told: asyncio.Queue = field(default_factory=asyncio.Queue)
    on_ready: Callable[[], None] = lambda: None

    def engine_started(self, engine) -> None:
        pass

    def engine_heartbeat(self, engine) -> None:
        pass

    def engine_ready(self, engine, ready) -> None:
        self.told.put_nowait(("ready", engine))
        self.on_ready()

    def engine_answered(self, engine, answer) -> None:
        self.told.put_nowait(("answered", answer))

    def model_lost(self, model, reason) -> None:
        self.told.put_nowait(("model lost", (model, reason)))

    def engine_lost(self, engine, loss) -> None:
        self.told.put_nowait(("lost", loss))

    async def event(self, what: str):
        told, detail = await asyncio.wait_for(self.told.get(), 60)
        assert told == what, (told, detail)
        return detail


def load(model: str) -> Load:
    return Load(model, model, "cpu", "float32", [1.0], None, None)


@contextlib.asynccontextmanager
async def supervised(
    *models: str, timeout: float = 30.0, clock=time.monotonic
) -> AsyncIterator[tuple[Supervisor, Listener]]:
    """A supervisor of a real stub process, and what it is told."""
    listener = Listener()
    loads = [load(model) for model in models or ("stub.nemo",)]
    supervisor = Supervisor(loads, listener, timeout=timeout, clock=clock, **STUB)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, listener
    finally:
        await supervisor.stop()
        await running


async def send(engine, number: int, *utterances: np.ndarray, model: str = "stub.nemo", decoder=None) -> None:
    engine.take_slot(number)
    await engine.send(Batch(number, model, decoder, [DEFAULT_PROMPT] * len(utterances)), utterances)


def silence(samples: int) -> np.ndarray:
    return np.zeros(samples, np.float32)


@asynchronous
async def test_an_engine_starts_answers_and_stops():
    async with supervised() as (supervisor, listener):
        engine = await listener.event("ready")
        samples = np.full(1000, 0.5, np.float32)

        await send(engine, 1, samples, silence(3))
        assert engine.free_slots == 0
        answer = await listener.event("answered")

        assert isinstance(answer, Result)
        assert answer.answers == [transcript(samples), transcript(silence(3))]
        assert engine.free_slots == 1
        await supervisor.stop()
        assert await listener.event("lost") is Loss.STOPPED
        assert engine.process.returncode == 0


TIMEOUT = Settings().engine_timeout_seconds


@contextlib.contextmanager
def ready_engine(clock: Clock) -> Iterator[Engine]:
    """An engine with a model that has nothing to do; a batch of the largest size takes it two seconds."""
    channel = SimpleNamespace(send=lambda message: None, close=lambda: None)
    engine = Engine("cpu", SimpleNamespace(pid=1), channel, unnamed_file(), ThreadPoolExecutor(1), clock)
    engine.load(load("m"))
    ready = Ready("m", ModelInfo("stub", "none", "float32"), [], 16_000, 60.0, 2, 30.0, 0, 1.0, 1.0)
    engine.become_ready(ready, longest_seconds=40.0)
    yield engine
    engine.release()


def test_an_engine_that_falls_silent_is_noticed_within_ten_seconds():
    clock = Clock()
    with ready_engine(clock) as engine:
        clock.now += 5.0
        assert not engine.is_stuck(TIMEOUT)
        clock.now += 4.0
        assert engine.is_stuck(TIMEOUT)
        engine.load(load("another"))
        clock.now += 6.0
        assert not engine.is_stuck(TIMEOUT)
        clock.now += 2.0
        assert engine.is_stuck(TIMEOUT)


def test_an_engine_that_starts_may_be_silent_for_a_minute():
    clock = Clock()
    with ready_engine(clock) as engine:
        engine.models.clear()
        engine.load(load("m"))

        clock.now += 59.0
        assert not engine.is_stuck(TIMEOUT)
        clock.now += 2.0
        assert engine.is_stuck(TIMEOUT)


@given(st.integers(1, 2), st.floats(0, 100))
def test_a_batch_that_never_ends_is_noticed_after_twice_its_expected_time_and_a_margin(batches, age):
    clock = Clock()
    with ready_engine(clock) as engine:
        for number in range(batches):
            engine.take_slot(number)
        clock.now += age
        engine.note_message(Heartbeat())  # it goes on giving signs of life

        assert engine.is_stuck(TIMEOUT) == (age > 2 * TIMEOUT + 2 * 2.0 * batches)


@pytest.mark.slow
@asynchronous
async def test_a_front_that_was_stopped_does_not_replace_its_engine():
    lost = 0.0

    async with supervised(clock=lambda: time.monotonic() + lost) as (supervisor, listener):
        heard = asyncio.Queue()
        listener.engine_heartbeat = heard.put_nowait
        engine = await listener.event("ready")
        engine.load(load("endless"))
        engine.take_slot(1)  # of a batch that is under way

        lost = 1000.0  # as if it had been stopped, and goes on
        for _ in range(3):
            await heard.get()

        assert supervisor.engine is engine
        assert engine.loss is Loss.EXIT


@pytest.mark.slow
@asynchronous
async def test_an_engine_that_hangs_is_killed_and_replaced():
    async with supervised(timeout=3.0) as (_, listener):
        engine = await listener.event("ready")

        os.kill(engine.pid, signal.SIGSTOP)

        assert await listener.event("lost") is Loss.STUCK
        assert (await listener.event("ready")).pid != engine.pid


@asynchronous
async def test_an_engine_that_has_ended_may_be_killed():
    """As when it dies of the fault that its last message reports."""

    async with supervised() as (_, listener):
        engine = await listener.event("ready")
        os.kill(engine.pid, signal.SIGKILL)
        await listener.event("lost")

        engine.kill(Loss.EXIT)

        await listener.event("ready")


def test_a_supervisor_that_is_stopped_while_its_engine_starts_ends_too(tmp_path, monkeypatch):
    (tmp_path / "deaf_engine.py").write_text("import signal\nsignal.pause()")  # as one that imports on a busy machine
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def main() -> None:
        supervisor = Supervisor([load("stub.nemo")], Listener(), timeout=30.0, **STUB | {"module": "deaf_engine"})
        running = asyncio.create_task(supervisor.run())
        await asyncio.sleep(0)  # it has begun to start a process, and has none yet
        assert supervisor.engine is None

        await supervisor.stop()

        await asyncio.wait_for(running, 30)

    asyncio.run(main())


@asynchronous
async def test_an_engine_ends_with_the_front():
    """A front that is killed leaves no engine behind: the end of the socket is enough."""

    async with supervised() as (_, listener):
        engine = await listener.event("ready")

        engine.channel.close()

        assert await asyncio.wait_for(engine.process.wait(), 10) == 0


@pytest.mark.slow
@asynchronous
async def test_replaced_engines_leave_no_descriptor_behind():
    async with supervised() as (_, listener):
        engine = await listener.event("ready")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            os.kill(engine.pid, signal.SIGKILL)
            await listener.event("lost")
            engine = await listener.event("ready")

        assert len(os.listdir("/proc/self/fd")) <= before + 2


@asynchronous
async def test_an_engine_that_downloads_its_model_first_becomes_ready():
    async with supervised("remote") as (_, listener):
        await listener.event("ready")


async def loaded(listener, count: int):
    """Wait for this many models; returns the engine."""
    engines = {await listener.event("ready") for _ in range(count)}
    (engine,) = engines
    return engine


@asynchronous
async def test_an_engine_has_several_models_and_answers_for_each_with_the_decoder_asked_for():
    async with supervised("stub.nemo", "ctc.nemo") as (_, listener):
        engine = await loaded(listener, 2)
        samples = np.full(1000, 0.5, np.float32)

        await send(engine, 1, samples, model="ctc.nemo", decoder="ctc")
        assert (await listener.event("answered")).answers == [transcript(samples, "ctc")]
        await send(engine, 2, samples, model="stub.nemo")
        assert (await listener.event("answered")).answers == [transcript(samples)]
        assert set(engine.models) == {"stub.nemo", "ctc.nemo"}


@asynchronous
async def test_a_model_comes_and_goes_while_another_works_and_its_successor_has_it_too():
    async with supervised() as (supervisor, listener):
        engine = await loaded(listener, 1)
        await supervisor.load(load("late"))
        assert await loaded(listener, 1) is engine

        await send(engine, 1, silence(CRASH_SAMPLES), model="late")
        assert await listener.event("lost") is Loss.EXIT
        engine = await loaded(listener, 2)
        await send(engine, 2, silence(5), model="late")
        assert isinstance(await listener.event("answered"), Result)

        supervisor.unload("late")
        await send(engine, 3, silence(CRASH_SAMPLES))
        assert await listener.event("lost") is Loss.EXIT
        assert set((await loaded(listener, 1)).models) == {"stub.nemo"}


@asynchronous
async def test_a_load_ends_when_its_model_is_unloaded_meanwhile():
    async with supervised() as (supervisor, listener):
        await loaded(listener, 1)
        loading = asyncio.create_task(supervisor.load(load("late")))
        await asyncio.sleep(0)

        supervisor.unload("late")

        with pytest.raises(ModelLoadError, match="unloaded while it loaded"):
            await asyncio.wait_for(loading, 60)


@asynchronous
async def test_a_model_that_is_unloaded_while_an_engine_loads_it_is_not_kept():
    """Another device has it ready, and this one is a successor, which loads its models one after the other."""

    async with supervised("stub.nemo", "late") as (supervisor, listener):
        listener.on_ready = lambda: supervisor.unload("late")  # when the first is ready
        engine = await loaded(listener, 1)
        listener.on_ready = lambda: None
        await supervisor.load(load("later"))  # behind the other in the engine's queue
        assert await loaded(listener, 1) is engine

        assert set(engine.models) == {"stub.nemo", "later"}
        await send(engine, 1, silence(5), model="late")
        failure = await listener.event("answered")
        assert (failure.number, failure.kind) == (1, FailureKind.BATCH)


@asynchronous
async def test_an_engine_answers_while_it_loads():
    async with supervised() as (supervisor, listener):
        engine = await loaded(listener, 1)
        loading = asyncio.create_task(supervisor.load(load("endless")))

        await send(engine, 1, silence(5))
        assert isinstance(await listener.event("answered"), Result)
        assert not loading.done()
        await send(engine, 2, silence(CRASH_SAMPLES))
        assert await listener.event("lost") is Loss.EXIT

        with pytest.raises(ModelLoadError, match="lost while it loaded"):
            await loading
        assert set((await loaded(listener, 1)).models) == {"stub.nemo"}


@asynchronous
async def test_a_further_model_that_a_new_engine_cannot_load_is_lost_and_the_others_stay(tmp_path):
    checkpoint = tmp_path / "fleeting.stub"
    checkpoint.touch()

    async with supervised() as (supervisor, listener):
        engine = await loaded(listener, 1)
        await supervisor.load(load(str(checkpoint)))
        assert await loaded(listener, 1) is engine
        checkpoint.unlink()

        os.kill(engine.pid, signal.SIGKILL)
        assert await listener.event("lost") is Loss.EXIT
        told = dict([await asyncio.wait_for(listener.told.get(), 60) for _ in range(2)])  # in whichever order

        model, reason = told["model lost"]
        assert model == str(checkpoint)
        assert "no such file" in reason
        engine = told["ready"]
        await send(engine, 1, silence(5))
        assert isinstance(await listener.event("answered"), Result)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@asynchronous
async def test_an_engine_that_a_fast_path_ends_begins_again_without_it_and_later_ones_too(cache):
    async with supervised("deadly-path") as (_, listener):
        assert await listener.event("lost") is Loss.EXIT
        engine = await listener.event("ready")
        assert engine.models["deadly-path"].fast_paths == {"loop": "failed"}
    assert barred("stub") == {"loop": "failed"}


@asynchronous
async def test_a_fast_path_that_hangs_is_barred_after_a_minute(cache):
    now = [0.0]

    async with supervised("endless-path", timeout=1000, clock=lambda: now[0]) as (supervisor, listener):
        while supervisor.engine is None or supervisor.engine.tried is None:
            await asyncio.sleep(0.01)  # until the trial is heard of
        now[0] += 61
        assert await listener.event("lost") is Loss.STUCK
        engine = await listener.event("ready")
        assert engine.models["endless-path"].fast_paths == {"loop": "hung"}


@asynchronous
async def test_what_fails_after_its_trial_is_left_out_too_and_kept_once_an_engine_is_ready_without_it(cache):
    async with supervised("late-path") as (_, listener):
        assert await listener.event("lost") is Loss.EXIT
        assert barred("stub") == {}
        engine = await listener.event("ready")
        assert engine.models["late-path"].fast_paths == {"loop": "failed"}
    assert barred("stub") == {"loop": "failed"}


@asynchronous
async def test_a_model_that_fails_without_fast_paths_too_says_nothing_of_them(cache):
    supervisor = Supervisor([load("hopeless-path")], Listener(), timeout=30.0, **STUB)

    with pytest.raises(EngineStartError, match="too many resources") as raised:
        await supervisor.run()

    assert raised.value.is_first
    assert barred("stub") == {}
