import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.threads import finish_even_if_cancelled


def test_the_work_of_a_thread_is_over_before_its_caller_is_cancelled():
    may_end, over = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait()
        over.set()

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            waiting = asyncio.create_task(finish_even_if_cancelled(loop.run_in_executor(pool, work)))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
            assert not waiting.done()

            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert over.is_set()

    asyncio.run(scenario())


def test_what_the_work_returns_or_raises_is_handed_on():
    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            assert await finish_even_if_cancelled(loop.run_in_executor(pool, int, "7")) == 7
            with pytest.raises(ValueError, match="seven"):
                await finish_even_if_cancelled(loop.run_in_executor(pool, int, "seven"))

    asyncio.run(scenario())
