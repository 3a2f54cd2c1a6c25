"""A worker's session in the main process: what the worker asks for in any order, and the ends of it."""

import asyncio
import os

import numpy as np
import pytest

from audio.segment.segmenter import Segment
from service.dispatch.recordings import Options
from service.shared_audio import Item
from service.workers.protocol import (
    Answered,
    Cuts,
    End,
    Ended,
    Failure,
    Granted,
    HoldModel,
    Transcribe,
    UseKey,
)
from tests.service.dispatch.fake_engine import LANE, RATE, is_free, settle
from tests.service.workers.sessions import run

OPTIONS = Options("caller", LANE, most_seconds=60.0)
SECONDS = 30


def recording(seconds: int = SECONDS) -> np.ndarray:
    """Each second has its number as samples."""
    return np.repeat(np.arange(seconds, dtype=np.float32), RATE)


def asked(call: int, *, is_whole: bool = False, item: Item | None = None, seconds: int = SECONDS) -> Transcribe:
    return Transcribe(call, OPTIONS, RATE, seconds * RATE, is_whole, item, None)


def file() -> int:
    descriptor = os.memfd_create("recording")
    os.write(descriptor, recording().tobytes())
    return descriptor


async def answered_all(on) -> None:
    while not (on.sent and isinstance(on.sent[-1], Ended)):
        await asyncio.sleep(0.001)
        if on.engine.batches:
            on.engine.answer(on.dispatcher)


def texts(on) -> list[str]:
    return [message.answer.transcript.text for message in on.sent if isinstance(message, Answered)]


@pytest.mark.parametrize("order", ["in memory", "message, file, cuts", "file, message, cuts", "message, cuts, file"])
def test_a_recording_is_answered_in_whatever_order_its_messages_come(order):
    async def scenario(on) -> None:
        cuts = [Cuts(7, Segment(0, 10 * RATE)), Cuts(7, Segment(20 * RATE, 30 * RATE)), Cuts(7, None)]
        item = on.arena.put(recording()) if order == "in memory" else None
        steps = {
            "message": lambda: on.session.handle(asked(7, item=item)),
            "file": lambda: on.session.take_descriptor(7, file()),
            "cuts": lambda: [on.session.handle(cut) for cut in cuts],
        }
        for step in ("message, cuts" if item else order).split(", "):
            steps[step]()
            await settle()
        await answered_all(on)

        assert texts(on) == ["0.0", "20.0"]
        assert on.sent[-1] == Ended(7)
        assert [message.answer.cut for message in on.sent[:-1]] == [cut.segment for cut in cuts[:-1]]
        assert not on.dispatcher.admission.backlog.entries
        await on.session.close()

    run(scenario)


@pytest.mark.parametrize("when", ["at once", "before its cuts are over", "while a part is computed"])
@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "in a file"])
@pytest.mark.parametrize("file_comes", ["before", "after", "never"])
def test_what_is_withdrawn_ends_once_and_leaves_nothing(when, in_memory, file_comes):
    """Between `Transcribe` and its file too: the file comes on another socket, and is closed whenever it comes."""

    async def scenario(on) -> None:
        on.session.handle(asked(3, item=on.arena.put(recording()) if in_memory else None))
        if not in_memory and file_comes == "before":
            on.session.take_descriptor(3, file())
        if when != "at once":
            on.session.handle(Cuts(3, Segment(0, 10 * RATE)))
            while when == "while a part is computed" and (in_memory or file_comes == "before"):
                if on.engine.batches:
                    break
                await asyncio.sleep(0.001)
        on.session.handle(End(3))
        on.session.handle(Cuts(3, Segment(10 * RATE, 20 * RATE)))
        await settle()
        while not on.sent:
            await asyncio.sleep(0.001)
        if not in_memory and file_comes == "after":
            on.session.take_descriptor(3, file())
        if on.engine.batches:
            on.engine.answer(on.dispatcher)

        assert on.sent == [Ended(3)]
        assert not on.dispatcher.admission.backlog.entries
        assert is_free(on.dispatcher.window)
        await on.session.close()

    run(scenario)


def test_a_worker_that_is_gone_takes_along_what_it_asked_for_and_held():
    async def scenario(on) -> None:
        on.session.handle(asked(1, item=on.arena.put(recording(2)), is_whole=True, seconds=2))
        on.session.handle(asked(2))
        on.session.take_descriptor(2, file())
        on.session.handle(Cuts(2, Segment(0, 10 * RATE)))
        on.session.take_descriptor(3, file())  # its message never comes
        on.session.handle(HoldModel(4, "m"))
        on.session.handle(UseKey(5, "alice", None))
        await settle()
        assert on.dispatcher.catalog["m"].users == 1

        await on.session.close()

        assert not on.dispatcher.admission.backlog.entries
        assert on.dispatcher.catalog["m"].users == 0
        allowance = on.core.access.allowance("alice")
        assert allowance.under_way == 0
        assert allowance.levels == (pytest.approx(2, abs=0.1), None)  # its request came to nothing

    run(scenario)


def test_a_file_that_this_process_has_no_room_for_is_an_error_of_its_request_alone():
    async def scenario(on) -> None:
        on.session.handle(asked(1))
        on.session.take_descriptor(1, None)
        on.session.handle(Cuts(1, Segment(0, RATE)))
        await answered_all(on)

        assert isinstance(on.sent[-1].failure, Failure)
        assert on.sent[-1].failure.kind == "OverloadedError"
        await on.session.close()

    run(scenario)


def test_a_part_that_the_recording_does_not_have_is_an_error(caplog):
    async def scenario(on) -> None:
        on.session.handle(asked(1, item=on.arena.put(recording())))
        on.session.handle(Cuts(1, Segment(0, 31 * RATE)))
        await answered_all(on)

        assert on.sent[-1].failure.kind == "ValueError"
        await on.session.close()

    run(scenario)


def test_grants_are_given_back_once_and_limits_refuse():
    async def scenario(on) -> None:
        on.session.handle(HoldModel(1, "m"))
        on.session.handle(HoldModel(2, "nobody"))
        on.session.handle(UseKey(3, "alice", None))
        await settle()
        assert on.sent[:2] == [Granted(1, "m"), Granted(2, None)]
        assert on.sent[2].levels == (pytest.approx(1, abs=0.1), None)
        on.session.handle(UseKey(4, "alice", None))
        await settle()
        assert on.sent[3].failure.kind == "RequestError"
        assert on.sent[3].failure.retry_after >= 1
        on.session.handle(End(3, has_failed=True))
        for call in (1, 2, 4):
            on.session.handle(End(call))
        await settle()
        assert {message.call for message in on.sent[4:]} == {1, 2, 3}
        assert on.dispatcher.catalog["m"].users == 0
        assert on.core.access.allowance("alice").levels == (pytest.approx(2, abs=0.1), None)
        await on.session.close()

    run(scenario)
