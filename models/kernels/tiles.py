"""The tiles of products: how much of the result a program computes."""

from dataclasses import dataclass

import torch
import triton

_MULTIPROCESSORS = 128  # of a large GPU


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


def chosen_tile(few: Tile, many: Tile, rows: int, columns: int, dtype: torch.dtype) -> Tile:
    """Return the tile for a product of ``rows`` and ``columns``; float32 has no room for large ones.

    A program reads all weights of its columns. With few rows, tiles are small, so that many programs share the work.
    With enough rows to fill a GPU, tiles are large, so that weights are read seldom.
    """
    enough = triton.cdiv(rows, many.rows) * triton.cdiv(columns, many.columns) >= _MULTIPROCESSORS
    return many if enough and dtype != torch.float32 else few
