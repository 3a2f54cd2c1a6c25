"""Memory for states of several sizes, of which only one is in use at a time."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_ALIGNMENT = 256  # bytes


class Layout(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        """The number of its values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its bytes, up to where the next tensor may begin."""
        return -(-self.elements * self.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT

    def zeros(self, device: torch.device) -> Tensor:
        """Return such a tensor with memory of its own."""
        return torch.zeros(self.shape, dtype=self.dtype, device=device)


class Arena:
    """Memory that states share: together they take little more than the largest, whatever the order in which they come.

    A state's tensors lie one behind the other in blocks, from the first block on. A larger state adds a block for those
    without room. Nothing moves, because graphs hold the addresses.
    """

    def __init__(self, device: torch.device) -> None:
        """Begin without memory."""
        self._device = device
        self._blocks: list[Tensor] = []

    @property
    def bytes(self) -> int:
        """Bytes of its blocks."""
        return sum(block.nbytes for block in self._blocks)

    def growth(self, state: Sequence[Layout]) -> int:
        """Return the bytes that a state would add."""
        return self._placed(state)[1]

    def tensors(self, state: Sequence[Layout]) -> list[Tensor]:
        """Return the tensors of a state; they hold zeros, or what another state wrote there."""
        places, growth = self._placed(state)
        if growth:
            self._blocks.append(torch.zeros(growth, dtype=torch.uint8, device=self._device))
        return [
            self._blocks[block][start : start + layout.bytes].view(layout.dtype)[: layout.elements].view(layout.shape)
            for layout, (block, start) in zip(state, places, strict=True)
        ]

    def _placed(self, state: Sequence[Layout]) -> tuple[list[tuple[int, int]], int]:
        """Return the block and the first byte of each tensor, and the bytes of a block to add."""
        room = [*(block.nbytes for block in self._blocks), math.inf]
        used = [0] * len(room)
        places = []
        for layout in state:
            block = next(index for index, most in enumerate(room) if used[index] + layout.bytes <= most)
            places.append((block, used[block]))
            used[block] += layout.bytes
        return places, used[-1]
