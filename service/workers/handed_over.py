"""A recording that a worker handed over to the main process: cut there, and read here."""

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import Executor

from audio.recording import read_samples
from audio.samples import Samples
from audio.segment.level import audible
from audio.segment.segmenter import Segment
from service.dispatch.errors import OverloadedError
from service.shared_audio import ArenaView, Item
from service.threads import in_thread
from service.workers.protocol import Transcribe


class HandedOver:
    """A `service.dispatch.recordings.Cut` that a message describes.

    Its samples are in the worker's memory, or in a file, which threads read and `close` closes; its descriptor is None
    if there was no room for it.
    """

    def __init__(self, message: Transcribe, memory: ArenaView, file: int | None, threads: Executor) -> None:
        self.rate = message.rate
        self.samples = message.samples
        self.is_whole = message.is_whole
        self.found: asyncio.Queue[Segment | None] = asyncio.Queue()  # its parts as they come; None: there are no more
        self._item = message.item
        self._memory = memory
        self._file = file
        self._threads = threads

    async def cuts(self) -> AsyncGenerator[Segment, None]:
        """Yield its parts as they come."""
        while (segment := await self.found.get()) is not None:
            yield segment

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of a part; of a recording that is cut, raised if they are quiet.

        Raises:
            ValueError: if it does not have them.
            OverloadedError: if this process could open no file for it.
        """
        start, stop, _ = segment
        if not 0 <= start <= stop <= self.samples:
            raise ValueError(f"there is no part {start}:{stop} of {self.samples} samples")
        if self._item is not None:
            samples = self._memory.read(Item(self._item.offset + start, stop - start))
            return samples if self.is_whole else audible(samples)
        if (file := self._file) is None:
            raise OverloadedError("The service can open no file for this request now.", 1)
        return await in_thread(self._threads, lambda: audible(read_samples(file, start, stop)))

    def close(self) -> None:
        """Close its file."""
        if self._file is not None:
            os.close(self._file)
