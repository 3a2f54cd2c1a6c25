"""Batches of about one size share what a CUDA graph needs: memory that stays, and the graph itself."""

import logging
import re
import sys
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

log = logging.getLogger("steno.models")

# Few rows are rounded up to a power of four: a step costs about the same for one row and for four. Many to a power of
# two: what is kept for rows takes memory, and a step as many times as long as it has rows.
_FEW_ROWS = 64
_LEAST_FRAMES = 64
# Of the free memory, what one size may take: a size that would take more is driven by the host, whose memory the next
# batch has again. So the sizes together never take all of it.
_SHARE = 8

FreeBytes = Callable[[torch.device], int]

Size = TypeVar("Size")


# What CUDA, torch and cuda-bindings say where something cannot be captured. Any other error is one of the work itself.
_CANNOT_CAPTURE = re.compile(r"captur|not[ _]supported|not permitted", re.IGNORECASE)
_ATTEMPTS = 2


class Sizes(Generic[Size]):
    """What was prepared for each size, once, at its first batch.

    Attributes:
        refused: sizes that the device could not capture; the host launches their operations.
    """

    def __init__(self) -> None:
        self._prepared: dict[tuple[Hashable, ...], Size] = {}
        self.refused: set[tuple[Hashable, ...]] = set()

    def __len__(self) -> int:
        return len(self._prepared)

    def known(self, size: tuple[Hashable, ...]) -> Size | None:
        """Return what was prepared for a size; None if nothing was."""
        return self._prepared.get(size)

    def get(self, size: tuple[Hashable, ...], prepare: Callable[[], Size]) -> Size | None:
        """Return what was prepared for a size; None if the device cannot capture it.

        It is tried twice: what another thread does may have spoiled the first capture.

        Raises:
            torch.OutOfMemoryError: if there is no room for it.
            RuntimeError: if the work fails.
        """
        if size in self._prepared or size in self.refused:
            return self._prepared.get(size)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._prepared[size] = prepare()
                break
            except RuntimeError as error:
                if not says_it_cannot_capture(error):
                    raise
                if attempt == _ATTEMPTS:
                    self._refuse(size, error)
        return self._prepared.get(size)

    def _refuse(self, size: tuple[Hashable, ...], error: RuntimeError) -> None:
        # An old driver or an old CUDA: slower, and never wrong. It refuses all, and is told of once.
        if not self.refused:
            log.warning("no CUDA graph of this size, the host will launch every operation: %s", error)
        self.refused.add(size)

    def counted(self) -> dict[str, int]:
        """Return how many sizes there are in each state."""
        return {"captured": len(self._prepared), "refused": len(self.refused)}


def says_it_cannot_capture(error: Exception) -> bool:
    """Return whether an error is one of a capture, and not of the work that was to be captured."""
    is_one_of_memory = isinstance(error, torch.OutOfMemoryError)
    return isinstance(error, RuntimeError) and not is_one_of_memory and bool(_CANNOT_CAPTURE.search(str(error)))


def free_bytes(device: torch.device) -> int:
    """Return what a device has left of its memory; of others than GPUs, it is taken for endless."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else sys.maxsize


def has_room(taken: int, device: torch.device, free: FreeBytes = free_bytes) -> bool:
    """Return whether a device has room for a size that takes so many bytes, and for others beside it."""
    return _SHARE * taken <= free(device)


def frame_size(frames: int) -> int:
    """Return for how many encoder frames there is a graph when a batch has ``frames``: at most half as many more.

    So recordings of every length share a few sizes. What a search does in them is masked, and costs little.
    """
    power = max(_LEAST_FRAMES, 1 << (frames - 1).bit_length())
    between = power * 3 // 4
    return between if frames <= between and between >= _LEAST_FRAMES else power


def row_sizes(most: int) -> list[int]:
    """Return for how many rows there are graphs when a batch has ``most`` at most, the largest first."""
    sizes = [1]
    while sizes[0] < most:
        sizes.insert(0, sizes[0] * (4 if sizes[0] < _FEW_ROWS else 2))
    return sizes


def graph_rows(most: int) -> list[int]:
    """Return for how many rows there are graphs of an encoder, for batches of up to ``most``; the largest first.

    What such a graph computes grows with its rows, so that there is one between a power of two and the next, and one
    of the largest batch there can be.
    """
    sizes = {most} | {1 << power for power in range(most.bit_length())}
    sizes |= {3 << power for power in range(most.bit_length())}
    return sorted((size for size in sizes if 0 < size <= most), reverse=True)
