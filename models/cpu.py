"""What this CPU and this build of torch can compute, found by trying each kind of product once.

Names and flags of processors are not enough: torch's libraries have conditions of their own, which change from
release to release. ``fuses_swish_well`` alone goes by the instruction set, and says why.
"""

import os
import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

# Rows and width of the products that are timed: under a millisecond each where they are fast.
_TIMED_ROWS, _TIMED_WIDTH = 128, 512
_TIMED_TURNS = 5
# The layout of packed weights is for this number of rows, 10 s of speech. For fewer rows that saves up to a fifth of
# the time, for more nothing.
_TYPICAL_ROWS = 125
# Errors where an operation does not exist in this build, or not for this processor.
_REFUSALS = (AttributeError, NotImplementedError, RuntimeError)

# PyTorch and oneDNN each cache what they prepare for a shape of products, by default for the last 1,024 shapes; the
# environment is read at the first product. Batches hardly ever have the same shape twice, and with 32 a process takes
# hundreds of megabytes less at the same speed (docs/performance.md).
for _name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "32")


def pack(weight: Tensor) -> Tensor:
    """Return a weight [outputs, inputs] as oneDNN reads it fastest.

    Raises:
        RuntimeError: where ``can_pack`` says no.
    """
    # Neither this nor the next operation is public or in every build: torch's compiler uses them for its own products.
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)  # noqa: SLF001
    return packed


def packed_product(inputs: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """Return the product [..., outputs] of inputs [..., inputs] and a packed weight, after an activation."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(inputs, weight, bias, activation, [], "")  # noqa: SLF001
    return product


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Return whether weights of a dtype can be packed; AVX2 alone packs float32 and not bfloat16."""
    square = torch.ones(16, 16, dtype=dtype)
    try:
        packed_product(square, pack(square), None)
    except _REFUSALS:
        return False
    return True


@cache
def multiplies_eight_bits_exactly() -> bool:
    """Return whether products in 8 bits have exact sums.

    Without instructions for them (VNNI), pairs of products are added in 16 bits, and large ones are cut off.
    """
    inputs, weight = torch.full((16, 64), 255, dtype=torch.uint8), torch.full((64, 64), 127, dtype=torch.int8)
    scales, zeros = torch.ones(64), torch.zeros(64, dtype=torch.int32)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        sums = torch.ops.onednn.qlinear_pointwise.default(
            inputs, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    except _REFUSALS:
        return False
    return bool((sums == 255 * 127 * 64).all())


@cache
def has_lstm(dtype: torch.dtype) -> bool:
    """Return whether autocast to a dtype computes an LSTM over a sequence; to bfloat16 not on every CPU."""
    try:
        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype):
            nn.LSTM(16, 16)(torch.zeros(2, 1, 16))
    except _REFUSALS:
        return False
    return True


@cache
def gain_of_bfloat16() -> float:
    """Return how many times as fast as in float32 a product is in bfloat16: 10 with a matrix unit, 0.1 with AVX2."""
    return gain(_product(torch.float32), _product(torch.bfloat16), time.perf_counter)


@cache
def gain_of_float16() -> float:
    """Return how many times as fast as in float32 a product is in float16."""
    return gain(_product(torch.float32), _product(torch.float16), time.perf_counter)


def fuses_swish_well() -> bool:
    """Return whether oneDNN's Swish, fused with a product in float32, is as fast as torch's after it.

    With AVX2, oneDNN's takes a fifth of the product's time and torch's a twentieth; with AVX-512 they take the same.
    The instruction set decides and no timing, because the two round differently, and results must not change between
    runs.
    """
    return torch.backends.cpu.get_cpu_capability() != "AVX2"


def gain(ordinary: Callable[[], object], other: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return how many times as fast the second of two calls is, by the shortest of several times of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (ordinary, other):
        call()
    for _ in range(_TIMED_TURNS):
        for call, taken in zip((ordinary, other), times, strict=True):
            began = clock()
            call()
            taken.append(clock() - began)
    return min(times[0]) / max(min(times[1]), 1e-9)


def _product(dtype: torch.dtype) -> Callable[[], object]:
    """Return a call that multiplies as a model of this dtype does."""
    inputs = torch.ones(_TIMED_ROWS, _TIMED_WIDTH, dtype=dtype)
    weight = torch.ones(_TIMED_WIDTH, _TIMED_WIDTH, dtype=dtype)
    if not can_pack(dtype):
        return lambda: nn.functional.linear(inputs, weight)
    packed = pack(weight)
    return lambda: packed_product(inputs, packed, None)
