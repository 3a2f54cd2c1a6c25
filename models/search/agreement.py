"""Whether a search in graphs finds what plain operations find, in the first batch of its kind."""

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath
from models.search.result import FetchedResult

# The size of that batch. In half precision, ties and the order of sums may change a row.
COMPARED_ROWS, COMPARED_FRAMES = 16, 64
_EQUAL_SHARE = 0.9


class Graphs(Protocol):
    """The graphs of a size of batches."""

    loops: bool  # whether the device repeats steps by itself


Prepared = TypeVar("Prepared", bound=Graphs)
# Searches a batch of noise by graphs, and in plain operations.
SearchBoth = Callable[[Prepared], tuple[FetchedResult, FetchedResult]]


class Agreement(Generic[Prepared]):
    """Compares the first graphs of each kind with plain operations; a path that finds something else is barred."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        """Begin without a comparison; the search decides by scores that were computed in ``dtype``."""
        self._device = device
        self._is_exact = dtype not in (torch.float16, torch.bfloat16)
        self._compared: set[tuple[FastPath, Hashable]] = set()

    def prepared(
        self, prepare: Callable[[], Prepared], search: SearchBoth[Prepared], kind: Hashable = None
    ) -> Prepared:
        """Prepare a size; without the device's loop, if the first with it does not find what plain operations find."""
        graphs = prepare()
        if not self.agrees(FastPath.LOOP if graphs.loops else FastPath.SEARCH_GRAPHS, graphs, search, kind):
            graphs = prepare()
            self.agrees(FastPath.SEARCH_GRAPHS, graphs, search, kind)
        return graphs

    def agrees(self, path: FastPath, graphs: Prepared, search: SearchBoth[Prepared], kind: Hashable = None) -> bool:
        """Compare the first graphs of a path and a kind; return whether as many rows have equal tokens as must have."""
        if not FAST_PATHS.suits(self._device) or (path, kind) in self._compared:
            return True
        self._compared.add((path, kind))
        with FAST_PATHS.trying(path, lambda _: True):
            pairs = list(zip(*(found.rows() for found in search(graphs)), strict=True))
            equal = sum(one.tokens == other.tokens for one, other in pairs)
            why = f"{equal} of {len(pairs)} rows have the tokens of plain operations"
            enough = (1.0 if self._is_exact else _EQUAL_SHARE) * len(pairs)
            return FAST_PATHS.judge(path, why, agrees=equal >= enough)


def noise(like: Tensor, rows: int, frames: int) -> tuple[Tensor, Tensor]:
    """Return noise [rows, frames, width] in width, dtype and device of ``like``, and the length of each row."""
    generator = torch.Generator(like.device).manual_seed(0)
    values = torch.randn(rows, frames, like.size(2), generator=generator, device=like.device)
    return values.to(like.dtype), torch.arange(rows, 0, -1, device=like.device) * frames // rows
