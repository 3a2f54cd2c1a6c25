"""Staging memory, which the front and one engine both map: audio is written once and never sent.

It has a slot for each batch that the engine may hold, and grows when a model needs larger slots. Its file has no name,
so the kernel frees it with the last process that uses it, however that process ends.
"""

import mmap
import os
from collections.abc import Sequence

import numpy as np

from audio.samples import Samples
from service.engine.protocol import Item

_SAMPLE_BYTES = 4


class Staging:
    """The front's view: slots that batches are written to and freed from.

    Args:
        descriptor: the unnamed file; it is grown to fit.
        slots: batches that can be held at once.
        slot_samples: samples per slot.
    """

    def __init__(self, descriptor: int, slots: int, slot_samples: int) -> None:
        self._descriptor = descriptor
        self._slots = slots
        self._start = self._slot_samples = 0
        self._memory: Samples = np.empty(0, np.float32)
        self._free: list[int] = []
        self._taken: dict[int, int] = {}
        self.grow(slot_samples)

    def grow(self, slot_samples: int) -> None:
        """Replace the slots if they are shorter than ``slot_samples``; batches in old ones stay until they are freed.

        New slots come after the old ones in the file. Old ones are not used again: the memory seldom grows.
        """
        if slot_samples <= self._slot_samples:
            return
        self._start += self._slots * self._slot_samples
        self._slot_samples = slot_samples
        end = self._start + self._slots * slot_samples
        os.ftruncate(self._descriptor, end * _SAMPLE_BYTES)
        self._memory = np.frombuffer(mmap.mmap(self._descriptor, 0), np.float32)
        self._free = list(range(self._start, end, slot_samples))

    def write(self, batch: int, utterances: Sequence[Samples]) -> list[Item]:
        """Copy a batch into a free slot, and return the place of each utterance.

        Raises:
            ValueError: if the batch does not fit a slot, or no slot is free.
        """
        if sum(map(len, utterances)) > self._slot_samples or not self._free:
            raise ValueError(f"batch {batch} has no room: {len(self._free)} free slots of {self._slot_samples} samples")
        offset = self._taken[batch] = self._free.pop()
        items = []
        try:
            for samples in utterances:
                self._memory[offset : offset + len(samples)] = samples
                items.append(Item(offset, len(samples)))
                offset += len(samples)
        except Exception:
            self.free(batch)
            raise
        return items

    def free(self, batch: int) -> None:
        """Free the slot of an answered batch, unless larger slots have replaced it."""
        offset = self._taken.pop(batch)
        if offset >= self._start:
            self._free.append(offset)


class StagingView:
    """The engine's view of the same memory, read only; the main process reads the arenas of workers by it too."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory: Samples = np.empty(0, np.float32)

    def read(self, item: Item) -> Samples:
        """Return an utterance's samples without copying them; valid until its batch is answered."""
        if item.offset + item.samples > len(self._memory):  # the file has grown
            self._memory = np.frombuffer(mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ), np.float32)
        return self._memory[item.offset : item.offset + item.samples]
