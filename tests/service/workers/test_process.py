"""A worker on its own."""

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor

from service.channel import Channel
from service.settings import Settings
from service.shared_audio import shared_file
from service.workers.process import Worker
from service.workers.protocol import Snapshot, from_worker


def test_a_worker_sends_its_metrics_when_no_thread_can_be_started():
    async def scenario() -> Snapshot:
        threads = ThreadPoolExecutor()
        threads.shutdown()
        asyncio.get_running_loop().set_default_executor(threads)
        ours, theirs = socket.socketpair()
        sent = asyncio.get_running_loop().create_future()
        channel = Channel(ours, from_worker, sent.set_result)
        worker = Worker(Settings(model="stub"), row=0, counts=counts, memory=memory, connection=theirs)
        await worker.send_snapshot()
        snapshot = await sent
        worker.channel.close()
        await channel.lost
        return snapshot

    counts, memory = shared_file(), shared_file()
    try:
        assert asyncio.run(scenario()).series
    finally:
        os.close(counts)
        os.close(memory)
