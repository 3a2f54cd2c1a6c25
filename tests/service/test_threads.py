import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.threads import in_thread, in_thread_if_possible
from tests.asynchronous import asynchronous


@asynchronous
async def test_the_work_of_a_thread_is_over_before_its_caller_is_cancelled():
    begun, may_end, over, told = threading.Event(), threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        may_end.wait()
        over.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = asyncio.create_task(in_thread(pool, work, lambda: told.append("cancelled")))
        await asyncio.to_thread(begun.wait)
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["cancelled"]
        assert not waiting.done()

        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert over.is_set()


def test_cancelled_work_is_not_begun():
    busy, done = threading.Event(), []

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            first = asyncio.create_task(in_thread(pool, busy.wait))
            second = asyncio.create_task(in_thread(pool, lambda: done.append("second")))
            third = asyncio.create_task(in_thread(pool, lambda: done.append("third")))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second  # at once, while the first goes on
            busy.set()
            await asyncio.gather(first, third)

    asyncio.run(scenario())
    assert done == ["third"]


@asynchronous
async def test_short_work_is_done_here_when_no_thread_can_be_started():
    threads = ThreadPoolExecutor()
    threads.shutdown()
    asyncio.get_running_loop().set_default_executor(threads)

    assert await in_thread_if_possible(threading.current_thread) is threading.current_thread()
