"""A recording that a worker handed over to the main process: cut there, and read here."""

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import Executor

from audio.recording import read_samples
from audio.samples import Samples
from audio.segment.segmenter import Segment
from service.dispatch.errors import OverloadedError
from service.shared_audio import ArenaView, Item
from service.threads import in_thread


class HandedOver:
    """A `service.dispatch.recordings.Cut`.

    Args:
        rate: samples per second.
        samples: number of samples.
        is_whole: whether it is one utterance.
        item: where it lies in the worker's memory; None: in a file that follows.
        memory: the worker's memory.
        threads: threads for reading the file.
    """

    def __init__(
        self, rate: int, samples: int, *, is_whole: bool, item: Item | None, memory: ArenaView, threads: Executor
    ) -> None:
        self.rate = rate
        self.samples = samples
        self.is_whole = is_whole
        self._item = item
        self._memory = memory
        self._threads = threads
        self._cuts: asyncio.Queue[Segment | None] = asyncio.Queue()
        self._file: asyncio.Future[int] | None = None if item else asyncio.get_running_loop().create_future()

    @property
    def waits_for_file(self) -> bool:
        """Whether its file has not come yet."""
        return self._file is not None and not self._file.done()

    def take_file(self, descriptor: int | None) -> None:
        """Take its file, which `close` closes; None if this process may open no more."""
        assert self._file is not None
        if descriptor is None:
            self._file.set_exception(OverloadedError("The service can open no file for this request now.", 1))
            self._file.exception()  # it may be closed before it is read
        else:
            self._file.set_result(descriptor)

    def add_cut(self, segment: Segment | None) -> None:
        """Take its next part; None: there are no more."""
        self._cuts.put_nowait(segment)

    async def cuts(self) -> AsyncGenerator[Segment, None]:
        """Yield its parts as they come."""
        while (segment := await self._cuts.get()) is not None:
            yield segment

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of a part.

        Raises:
            ValueError: if it does not have them.
        """
        start, stop, _ = segment
        if not 0 <= start <= stop <= self.samples:
            raise ValueError(f"there is no part {start}:{stop} of {self.samples} samples")
        if self._item is not None:
            return self._memory.read(Item(self._item.offset + start, stop - start))
        assert self._file is not None
        descriptor = await asyncio.shield(self._file)
        return await in_thread(self._threads, lambda: read_samples(descriptor, start, stop))

    def close(self) -> None:
        """Close its file, if it has come."""
        if self._file is not None and self._file.done() and not self._file.exception():
            os.close(self._file.result())
