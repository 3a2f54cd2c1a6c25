"""A worker on its own."""

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor

from audio.descriptor import unnamed_file
from service.settings import Settings
from service.shared_audio import Arena
from service.workers.process import _Worker
from service.workers.protocol import SendSnapshot, Snapshot
from service.workers.remote import Calls
from service.workers.shared_counts import SharedCounts


def test_a_worker_sends_its_metrics_when_no_thread_can_be_started():
    sent = []

    async def scenario():
        threads = ThreadPoolExecutor()
        threads.shutdown()
        asyncio.get_running_loop().set_default_executor(threads)
        with socket.socket() as listener:
            worker = _Worker(
                Settings(model="stub"), SharedCounts(counts, 2, 0), Arena(memory), Calls(sent.append), None, listener
            )
            worker.handle(SendSnapshot())
            await asyncio.gather(*worker._sending)

    counts, memory = unnamed_file(), unnamed_file()
    try:
        asyncio.run(scenario())
    finally:
        os.close(counts)
        os.close(memory)

    assert isinstance(sent[0], Snapshot)
    assert sent[0].samples
