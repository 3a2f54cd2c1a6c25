import asyncio
import os
import signal
from dataclasses import dataclass, field

import numpy as np
import pytest

from service.engine.protocol import NOTHING_ASKED, Failure, FailureKind, Load, Result
from service.engine.stub import CRASH_SAMPLES, DEVICE_SAMPLES, FAIL_SAMPLES, transcript
from service.engine.supervisor import STUB_ENGINE, EngineStartError, Loss, Supervisor


@dataclass
class Listener:
    """Queues what it is told, so that a scenario can wait for it."""

    told: asyncio.Queue = field(default_factory=asyncio.Queue)

    def engine_started(self, engine) -> None:
        pass

    def engine_heard(self, engine) -> None:
        pass

    def engine_ready(self, engine, ready) -> None:
        self.told.put_nowait(("ready", engine))

    def engine_answered(self, engine, answer) -> None:
        self.told.put_nowait(("answered", answer))

    def engine_lost(self, engine, loss) -> None:
        self.told.put_nowait(("lost", loss))

    async def hears(self, what: str):
        told, detail = await asyncio.wait_for(self.told.get(), 60)
        assert told == what, (told, detail)
        return detail


def supervised(scenario, *, model: str = "stub.nemo", timeout: float = 30.0) -> None:
    """Run a scenario against a supervisor of a real stub process."""

    async def main() -> None:
        listener = Listener()
        load = Load(model, "cpu", "float32", [1.0], None, None)
        supervisor = Supervisor(load, listener, longest_seconds=2.0, timeout=timeout, module=STUB_ENGINE)
        running = asyncio.create_task(supervisor.run())
        try:
            await scenario(supervisor, listener)
        finally:
            await supervisor.stop()
            await running

    asyncio.run(main())


async def send(engine, number: int, *utterances: np.ndarray) -> None:
    engine.take_place(number)
    await engine.transcribe(number, utterances, [NOTHING_ASKED] * len(utterances))


def silence(samples: int) -> np.ndarray:
    return np.zeros(samples, np.float32)


def test_an_engine_starts_answers_and_stops():
    async def scenario(supervisor, listener) -> None:
        engine = await listener.hears("ready")
        samples = np.full(1000, 0.5, np.float32)

        await send(engine, 1, samples, silence(3))
        assert engine.free_places == 0
        answer = await listener.hears("answered")

        assert isinstance(answer, Result)
        assert answer.transcripts == [transcript(samples), transcript(silence(3))]
        assert engine.free_places == 1
        await supervisor.stop()
        assert await listener.hears("lost") is Loss.STOPPED
        assert engine.process.returncode == 0

    supervised(scenario)


def test_a_failed_batch_leaves_the_engine_running():
    async def scenario(supervisor, listener) -> None:
        engine = await listener.hears("ready")

        await send(engine, 1, silence(FAIL_SAMPLES))
        failure = await listener.hears("answered")
        await send(engine, 2, silence(5))
        answer = await listener.hears("answered")

        assert isinstance(failure, Failure)
        assert failure.kind is FailureKind.BATCH
        assert isinstance(answer, Result)

    supervised(scenario)


@pytest.mark.parametrize(("samples", "loss"), [(CRASH_SAMPLES, Loss.EXIT), (DEVICE_SAMPLES, Loss.DEVICE)])
def test_an_engine_that_dies_is_replaced(samples, loss):
    async def scenario(supervisor, listener) -> None:
        engine = await listener.hears("ready")

        await send(engine, 1, silence(samples))

        assert await listener.hears("lost") is loss
        successor = await listener.hears("ready")
        assert successor.pid != engine.pid

    supervised(scenario)


def test_an_engine_that_hangs_is_killed_and_replaced():
    async def scenario(supervisor, listener) -> None:
        engine = await listener.hears("ready")

        os.kill(engine.pid, signal.SIGSTOP)

        assert await listener.hears("lost") is Loss.STUCK
        assert (await listener.hears("ready")).pid != engine.pid

    supervised(scenario, timeout=3.0)


def test_a_first_start_that_fails_says_why():
    async def main() -> None:
        load = Load("unreadable", "cpu", "float32", [1.0], None, None)
        supervisor = Supervisor(load, Listener(), longest_seconds=2.0, timeout=30.0, module=STUB_ENGINE)

        with pytest.raises(EngineStartError, match="unreadable: not a checkpoint"):
            await supervisor.run()

    asyncio.run(main())


def test_an_engine_ends_with_the_front():
    """A front that is killed leaves no engine behind: the end of the socket is enough."""

    async def scenario(supervisor, listener) -> None:
        engine = await listener.hears("ready")

        engine.channel.close()

        assert await asyncio.wait_for(engine.process.wait(), 10) == 0

    supervised(scenario)


def test_replaced_engines_leave_no_descriptor_behind():
    async def scenario(supervisor, listener) -> None:
        engine = await listener.hears("ready")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            os.kill(engine.pid, signal.SIGKILL)
            await listener.hears("lost")
            engine = await listener.hears("ready")

        assert len(os.listdir("/proc/self/fd")) <= before + 2

    supervised(scenario)


def test_an_engine_that_downloads_its_model_first_becomes_ready():
    async def scenario(supervisor, listener) -> None:
        await listener.hears("ready")

    supervised(scenario, model="remote")
