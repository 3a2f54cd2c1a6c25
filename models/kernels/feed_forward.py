"""The expansion of a feed-forward module and its Swish in one kernel.

The libraries' products have no Swish, so plain operations read and write the expanded frames, the largest tensor of a
layer, once more. Here Swish is applied to the sums in registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from models.kernels.tiles import Tile

# Channels that a program multiplies at a time.
_SLICE = 64
# Consecutive programs share the weights of their columns, for this number of blocks of frames.
_GROUP = 8
# Two programs of the smaller kind fit a multiprocessor, so that one computes Swish while the other multiplies; the
# larger kind loads less for its products.
TILES = Tile(128, 128), Tile(128, 256, warps=8)


@triton.jit(do_not_specialize=["blocks"])
def _expand(
    frames,
    weight,
    bias,
    expanded,
    blocks,
    columns,
    CHANNELS: tl.constexpr,
    BIASED: tl.constexpr,
    FRAMES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SLICE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Compute a block of frames and columns."""
    strips = tl.cdiv(columns, COLUMNS)
    program = tl.program_id(0)
    group = program // (GROUP * strips)
    height = min(blocks - group * GROUP, GROUP)
    within = program % (GROUP * strips)
    frame, column = (group * GROUP + within % height) * FRAMES, within // height * COLUMNS
    total = tl.zeros((FRAMES, COLUMNS), tl.float32)
    for channel in range(0, CHANNELS, SLICE):
        given, weights = frames.load([frame, channel]), weight.load([column, channel])
        total = tl.dot(given, weights.T, total, input_precision="ieee")
    if BIASED:
        place = column + tl.arange(0, COLUMNS)
        total += tl.load(bias + place, mask=place < columns, other=0.0).to(tl.float32)[None, :]
    swished = total / (1 + tl.exp(-total))
    expanded.store([frame, column], swished.to(expanded.dtype))


def swish_expansion(frames: Tensor, weight: Tensor, bias: Tensor | None, tile: Tile = TILES[0]) -> Tensor:
    """Apply a linear layer, and Swish.

    Args:
        frames: [..., channels]; channels and columns are multiples of 16 bytes.
        weight: [columns, channels].
        bias: [columns].
        tile: frames and columns of a program.

    Returns:
        [..., columns].
    """
    flat, columns = frames.flatten(0, -2).contiguous(), weight.size(0)
    expanded = torch.empty(flat.size(0), columns, dtype=frames.dtype, device=frames.device)
    if expanded.numel():
        blocks = triton.cdiv(flat.size(0), tile.rows)
        _expand[(blocks * triton.cdiv(columns, tile.columns),)](
            TensorDescriptor.from_tensor(flat, [tile.rows, _SLICE]),
            TensorDescriptor.from_tensor(weight, [tile.columns, _SLICE]),
            bias,
            TensorDescriptor.from_tensor(expanded, [tile.rows, tile.columns]),
            blocks,
            columns,
            CHANNELS=flat.size(1),
            BIASED=bias is not None,
            FRAMES=tile.rows,
            COLUMNS=tile.columns,
            SLICE=_SLICE,
            GROUP=_GROUP,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    shaped: Tensor = expanded.unflatten(0, frames.shape[:-1])
    return shaped
