"""Uploads are received in their order, no faster than they are decoded, and none waits for ever."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.transcription import intake as module
from service.http.transcription.intake import Intake

ROUNDS = 400


async def rounds(count: int = ROUNDS) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Upload:
    """Waits for its turn, is decoded until it may end, and notes what happened in which round."""

    def __init__(self, intake: Intake, through: list["Upload"]):
        self.decoded = asyncio.Event()
        self.task = asyncio.create_task(self.run(intake, through))

    async def run(self, intake: Intake, through: list["Upload"]) -> None:
        await intake.turn()
        through.append(self)
        with intake.decoding():
            await self.decoded.wait()


@pytest.fixture(autouse=True)
def _all_are_short(monkeypatch):
    """On a busy machine, rounds of the loop may take longer than an upload that still counts."""
    monkeypatch.setattr(module, "_SHORT_SECONDS", 3600.0)


def scenario(act: Callable) -> None:
    asyncio.run(act())


@given(st.integers(1, 4), st.lists(st.booleans(), max_size=20))
def test_as_many_as_may_wait_for_decoding_are_let_through_in_their_order(most, leaves):
    async def act() -> None:
        intake, through = Intake(most), []
        uploads = [Upload(intake, through) for _ in leaves]
        await asyncio.sleep(0)
        staying = [upload for upload, left in zip(uploads, leaves, strict=True) if not left or upload in through]
        for upload in set(uploads).difference(staying):
            upload.task.cancel()
        for done in range(len(staying)):
            await rounds(3 * len(leaves))
            assert through == staying[: done + most]
            staying[done].decoded.set()
        await asyncio.gather(*(upload.task for upload in staying))
        later = [Upload(intake, through) for _ in range(most + 1)]
        await rounds(3 * most + 3)
        assert through[len(staying) :] == later[:most]  # nothing of the others counts any more
        for upload in later:
            upload.decoded.set()
        await asyncio.gather(*(upload.task for upload in later))

    scenario(act)


def test_others_have_a_round_between_two_uploads():
    async def act() -> None:
        intake, order = Intake(100), []

        async def upload() -> None:
            await intake.turn()
            order.append("upload")

        uploads = [asyncio.create_task(upload()) for _ in range(10)]

        async def other() -> None:
            while order.count("upload") < len(uploads):
                order.append("other")
                await asyncio.sleep(0)

        await asyncio.gather(other(), *uploads)
        assert "upload upload" not in " ".join(order)

    scenario(act)


def test_long_uploads_leave_room_for_short_ones(monkeypatch):
    monkeypatch.setattr(module, "_SHORT_SECONDS", 0.0)

    async def act() -> None:
        intake, through = Intake(1), []
        first, second = (Upload(intake, through) for _ in range(2))
        await rounds()
        assert through == [first, second]  # though the first is not decoded yet
        for upload in (second, first):
            upload.decoded.set()
            await upload.task

    scenario(act)


def test_an_upload_that_is_cancelled_while_it_is_decoded_makes_room():
    async def act() -> None:
        intake, through = Intake(1), []
        first, second = (Upload(intake, through) for _ in range(2))
        await rounds()
        first.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first.task
        await rounds()
        assert through == [first, second]
        second.decoded.set()
        await second.task

    scenario(act)
