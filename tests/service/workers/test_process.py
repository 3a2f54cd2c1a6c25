"""A worker on its own."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from service.settings import Settings
from service.shared_audio import Arena, shared_file
from service.workers.process import _Worker
from service.workers.protocol import Snapshot
from service.workers.shared_counts import SharedCounts


def test_a_worker_sends_its_metrics_when_no_thread_can_be_started():
    sent = []

    async def scenario():
        threads = ThreadPoolExecutor()
        threads.shutdown()
        asyncio.get_running_loop().set_default_executor(threads)
        shared, channel = SharedCounts(counts, 2, 0), SimpleNamespace(send=sent.append)
        worker = _Worker(Settings(model="stub"), shared, channel, None, Arena(memory))
        await worker.send_snapshot()

    counts, memory = shared_file(), shared_file()
    try:
        asyncio.run(scenario())
    finally:
        os.close(counts)
        os.close(memory)

    assert isinstance(sent[0], Snapshot)
    assert sent[0].samples
