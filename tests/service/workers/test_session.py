"""A worker's session in the main process: what the worker asks for in any order, and the ends of it."""

import asyncio
import os
import socket

import numpy as np
import pytest

from audio.segment.segmenter import Segment
from service.dispatch.recordings import Options
from service.shared_audio import Item
from service.workers.protocol import (
    Cuts,
    End,
    Ended,
    Failure,
    HoldModel,
    Relay,
    Transcribe,
    UseKey,
)
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import LANE, RATE, is_free, settle
from tests.service.workers.sessions import session

OPTIONS = Options("caller", LANE, most_seconds=60.0)
SECONDS = 30


def recording(seconds: int = SECONDS) -> np.ndarray:
    """Each second has its number as samples."""
    return np.repeat(np.arange(seconds, dtype=np.float32), RATE)


def asked(call: int, *, is_whole: bool = False, item: Item | None = None, seconds: int = SECONDS) -> Transcribe:
    return Transcribe(call, OPTIONS, RATE, seconds * RATE, is_whole, item)


def file() -> int:
    descriptor = os.memfd_create("recording")
    os.write(descriptor, recording().tobytes())
    return descriptor


def ask(on, *messages) -> None:
    """Send messages of the worker; each recording that is not in memory has its file."""
    for message in messages:
        descriptor = file() if isinstance(message, Transcribe) and message.item is None else None
        on.worker.send(message, descriptor)
        if descriptor is not None:
            os.close(descriptor)


@asynchronous
async def test_a_connection_to_answer_on_is_passed_on_unless_there_was_no_room_for_it():
    async with session() as on:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            on.worker.send(Relay(), theirs.fileno())
            on.worker.send(Relay())
            await settle()
        (descriptor,) = on.relayed
        os.close(descriptor)


async def answered_all(on) -> None:
    while not (on.sent and isinstance(on.sent[-1], Ended)):
        await asyncio.sleep(0.001)
        if on.engine.batches:
            on.engine.answer(on.dispatcher)


@pytest.mark.parametrize("when", ["at once", "before its cuts are over", "while a part is computed"])
@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "in a file"])
@asynchronous
async def test_what_is_withdrawn_ends_once_and_leaves_nothing(when, in_memory):
    async with session() as on:
        ask(on, asked(3, item=on.arena.put(recording()) if in_memory else None))
        if when != "at once":
            ask(on, Cuts(3, Segment(0, 10 * RATE)))
            while when == "while a part is computed" and not on.engine.batches:
                await asyncio.sleep(0.001)
        ask(on, End(3), Cuts(3, Segment(10 * RATE, 20 * RATE)))
        await settle()
        while not on.sent:
            await asyncio.sleep(0.001)
        if on.engine.batches:
            on.engine.answer(on.dispatcher)

        assert on.sent == [Ended(3)]
        assert not on.dispatcher.admission.backlog.entries
        assert is_free(on.dispatcher.window)


@asynchronous
async def test_a_worker_that_is_gone_takes_along_what_it_asked_for_and_held():
    async with session() as on:
        ask(on, asked(1, item=on.arena.put(recording(2)), is_whole=True, seconds=2), asked(2))
        ask(on, Cuts(2, Segment(0, 10 * RATE)), HoldModel(4, "m"), UseKey(5, "alice", None))
        await settle()
        assert on.dispatcher.catalog["m"].users == 1

        await on.session.close()

        assert not on.dispatcher.admission.backlog.entries
        assert on.dispatcher.catalog["m"].users == 0
        allowance = on.core.access.allowance("alice")
        assert allowance.under_way == 0
        assert allowance.levels == (pytest.approx(2, abs=0.1), None)  # its request came to nothing


@asynchronous
async def test_a_file_that_this_process_has_no_room_for_is_an_error_of_its_request_alone():
    async with session() as on:
        on.worker.send(asked(1))
        ask(on, Cuts(1, Segment(0, RATE)))
        await answered_all(on)

        assert isinstance(on.sent[-1].failure, Failure)
        assert on.sent[-1].failure.kind == "OverloadedError"


@asynchronous
async def test_a_part_that_the_recording_does_not_have_is_an_error(caplog):
    async with session() as on:
        ask(on, asked(1, item=on.arena.put(recording())), Cuts(1, Segment(0, 31 * RATE)))
        await answered_all(on)

        assert on.sent[-1].failure.kind == "ValueError"
