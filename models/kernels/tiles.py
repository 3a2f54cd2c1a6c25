"""The tiles of products: how much of the result a program computes."""

from dataclasses import dataclass

import torch
import triton

# Fewer programs than this finish no sooner: a multiprocessor reads and multiplies at most this part of what all of them
# together read. (An H100's L2 cache gives 5.5 TB/s, and one multiprocessor takes 0.11 TB/s, half while it multiplies.)
_READERS = 100


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a product that a program computes.

    Attributes:
        rows: rows of the result, at least 16 for tensor cores.
        columns: columns of the result.
        warps: warps of the program.
        stages: loads that overlap.
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 3

    def reads(self, rows: int, columns: int) -> int:
        """Return what the slowest reader makes of a product: vectors read, of rows and of weights, by all programs.

        A program reads the vectors of its rows and its columns, from the cache that all share.
        """
        programs = triton.cdiv(rows, self.rows) * triton.cdiv(columns, self.columns)
        return max(int(programs), _READERS) * (self.rows + self.columns)


def chosen_tile(few: Tile, many: Tile, rows: int, columns: int, dtype: torch.dtype) -> Tile:
    """Return the tile for a product of ``rows`` and ``columns``; float32 has no room for large ones.

    With few rows, tiles are small, so that many programs share the work. With more, tiles are large, so that weights
    are read seldom.
    """
    is_large = many.reads(rows, columns) < few.reads(rows, columns)
    return many if is_large and dtype != torch.float32 else few
