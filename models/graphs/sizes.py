"""The sizes that CUDA graphs are captured for; batches of similar size share a graph and its memory."""

import logging
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import torch

from models.device.memory import free_bytes
from models.graphs.arena import Arena, Layout

log = logging.getLogger("steno.models")

# Few rows are rounded up to a power of four, because a step of four rows takes about as long as that of one. More rows
# are rounded up to a power of two, because their memory and time grow with their number.
_FEW_ROWS = 64
_LEAST_FRAMES = 64
# One size may add this part (1 / _SHARE) of the free memory, so that sizes together never take all of it. The host
# drives larger ones, whose memory is free again after the batch.
_SHARE = 8

FreeBytes = Callable[[torch.device], int]

Prepared = TypeVar("Prepared")

# Messages of CUDA, torch and cuda-bindings if work cannot be captured. Any other error is one of the work itself.
_CANNOT_CAPTURE = re.compile(r"captur|not[ _]supported|not permitted", re.IGNORECASE)
_ATTEMPTS = 2


class Sizes(Generic[Prepared]):
    """Things prepared once for each size.

    Attributes:
        arena: memory that sizes share.
        refused: sizes that could not be captured; the host launches their operations.
        without_room: sizes for which too little memory was free; the host launches theirs too, until there is more.
    """

    def __init__(self, device: torch.device, free: FreeBytes = free_bytes) -> None:
        """Begin without a size; ``free`` returns the free bytes of the device."""
        self.arena = Arena(device)
        self._device = device
        self._free = free
        self._prepared: dict[tuple[Hashable, ...], Prepared] = {}
        self.refused: set[tuple[Hashable, ...]] = set()
        self.without_room: set[tuple[Hashable, ...]] = set()

    def __len__(self) -> int:
        return len(self._prepared)

    def known(self, size: tuple[Hashable, ...]) -> Prepared | None:
        """Return what was prepared for a size, or None."""
        return self._prepared.get(size)

    def has_room(self, size: tuple[Hashable, ...], state: Sequence[Layout]) -> bool:
        """Return whether the device has room for what a state adds to the arena, and for other sizes.

        False for a size that was refused, without asking the device at each batch.
        """
        if size in self.refused:
            return False
        growth, free = self.arena.growth(state), self._free(self._device)
        if _SHARE * growth <= free:
            self.without_room.discard(size)
            return True
        if not self.without_room:
            message = "no room for a CUDA graph of this size, the host will launch every operation: %.1f GB, %.1f free"
            log.warning(message, growth / 1e9, free / 1e9)
        self.without_room.add(size)
        return False

    def get(self, size: tuple[Hashable, ...], prepare: Callable[[], Prepared]) -> Prepared | None:
        """Return what is prepared for a size, after preparing it at the first call; None if it cannot be captured.

        A failed capture is tried once more, because work of another thread may have spoiled it.

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
        # An old driver or CUDA: slower, but correct. It fails for all sizes, and is logged once.
        if not self.refused:
            log.warning("no CUDA graph of this size, the host will launch every operation: %s", error)
        self.refused.add(size)

    def clear(self) -> None:
        """Drop all sizes and their memory; no search may be under way."""
        self._prepared.clear()
        self.refused.clear()
        self.without_room.clear()
        self.arena = Arena(self._device)

    def counted(self) -> dict[str, int]:
        """Return the number of sizes in each state."""
        return {
            "captured": len(self._prepared),
            "refused": len(self.refused),
            "no_room": len(self.without_room),
        }


def says_it_cannot_capture(error: Exception) -> bool:
    """Return whether an error is one of the capture, and not of the work."""
    is_one_of_memory = isinstance(error, torch.OutOfMemoryError)
    return isinstance(error, RuntimeError) and not is_one_of_memory and bool(_CANNOT_CAPTURE.search(str(error)))


def frame_size(frames: int) -> int:
    """Return the frames of the graph for a batch with ``frames`` encoder frames: 64, or at most half as many more.

    So recordings of all lengths share a few sizes. A search masks the additional frames, which cost little.
    """
    power = max(_LEAST_FRAMES, 1 << (frames - 1).bit_length())
    between = power * 3 // 4
    return between if frames <= between and between >= _LEAST_FRAMES else power


def row_sizes(most: int) -> list[int]:
    """Return the rows of a search's graphs, for batches of up to ``most`` rows; the largest first."""
    sizes = [1]
    while sizes[0] < most:
        sizes.insert(0, sizes[0] * (4 if sizes[0] < _FEW_ROWS else 2))
    return sizes


def graph_rows(most: int) -> list[int]:
    """Return the rows of an encoder's graphs, for batches of up to ``most`` rows; the largest first.

    An encoder's time grows with its rows, so there is a graph between each power of two and the next, and one for
    ``most``.
    """
    sizes = {most} | {1 << power for power in range(most.bit_length())}
    sizes |= {3 << power for power in range(most.bit_length())}
    return sorted((size for size in sizes if 0 < size <= most), reverse=True)
