"""Batches of about one size share what a CUDA graph needs: memory that stays, and the graph itself."""

import logging
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


class Sizes(Generic[Size]):
    """What was prepared for each size, once, at its first batch."""

    def __init__(self) -> None:
        self._prepared: dict[tuple[Hashable, ...], Size] = {}
        self.is_refused = False

    def __len__(self) -> int:
        return len(self._prepared)

    def known(self, size: tuple[Hashable, ...]) -> Size | None:
        """Return what was prepared for a size; None if nothing was."""
        return self._prepared.get(size)

    def get(self, size: tuple[Hashable, ...], prepare: Callable[[], Size]) -> Size | None:
        """Return what was prepared for a size; None if the device cannot capture graphs, now and ever after.

        Raises:
            torch.OutOfMemoryError: if there is no room for it.
        """
        if self.is_refused:
            return None
        if size not in self._prepared:
            try:
                self._prepared[size] = prepare()
            except RuntimeError as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                # An old driver or an old CUDA: slower, and never wrong.
                log.warning("no CUDA graphs, the host will launch every operation: %s", error)
                self.is_refused = True
                return None
        return self._prepared[size]


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
