"""What this CPU and this build of torch can compute, and how fast: operations are tried, and some timed.

Names and flags of processors are not enough: torch's libraries have conditions of their own, which change from
release to release. Only ``fuses_swish_well`` goes by the instruction set, and says why.
"""

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

# Rows and width of the products that are timed. A fast one takes under a millisecond.
_TIMED_ROWS, _TIMED_WIDTH = 128, 512
_TIMED_TURNS = 5
# oneDNN chooses the layout of packed weights for this number of rows, 10 s of speech. Products of fewer rows then take
# up to a fifth less time, those of more rows the same.
_TYPICAL_ROWS = 125
# Errors of an operation that does not exist in this build, or not for this processor.
_REFUSALS = (AttributeError, NotImplementedError, RuntimeError)

# PyTorch and oneDNN each cache what they prepare for a shape of products, by default for the last 1,024 shapes. Batches
# hardly ever have the same shape twice, so caches of 32 are as fast, and take hundreds of megabytes less
# (docs/performance.md). Both read the environment at the first product.
for _name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "32")


def processor() -> str:
    """Return the name of this machine's processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def pack(weight: Tensor) -> Tensor:
    """Return a weight [outputs, inputs] in the layout that oneDNN reads fastest.

    Raises:
        AttributeError, RuntimeError: if ``can_pack`` is false for its dtype.
    """
    # This operation and that of ``packed_product`` are not public, and not in every build: torch's compiler uses them.
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)  # noqa: SLF001
    return packed


def packed_product(inputs: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """Return the activation of a product [..., outputs]: of inputs [..., inputs], a packed weight and a bias."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(inputs, weight, bias, activation, [], "")  # noqa: SLF001
    return product


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Return whether weights of a dtype can be packed. A CPU with AVX2 only packs float32, but not bfloat16."""
    square = torch.ones(16, 16, dtype=dtype)
    try:
        packed_product(square, pack(square), None)
    except _REFUSALS:
        return False
    return True


@cache
def multiplies_eight_bits_exactly() -> bool:
    """Return whether matrix products in 8 bits have exact sums.

    Without instructions for them (VNNI), pairs of products are added in 16 bits, where large sums saturate.
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
    """Return whether an LSTM runs under autocast to a dtype; in bfloat16, some CPUs have none."""
    try:
        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype):
            nn.LSTM(16, 16)(torch.zeros(2, 1, 16))
    except _REFUSALS:
        return False
    return True


@cache
def gain_of_bfloat16() -> float:
    """Return the speed of a product in bfloat16 over that in float32: 10 with a matrix unit, 0.1 with AVX2."""
    return gain(_product(torch.float32), _product(torch.bfloat16), time.perf_counter)


@cache
def gain_of_float16() -> float:
    """Return the speed of a product in float16 over that in float32."""
    return gain(_product(torch.float32), _product(torch.float16), time.perf_counter)


def fuses_swish_well() -> bool:
    """Return whether oneDNN's Swish, fused with a product in float32, is as fast as torch's after the product.

    With AVX2, oneDNN's takes a fifth of the product's time and torch's a twentieth; with AVX-512 both take the same.
    The instruction set decides, not a timing: the two round differently, and results must not change between runs.
    """
    return torch.backends.cpu.get_cpu_capability() != "AVX2"


def gain(ordinary: Callable[[], object], other: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the speed of the second of two calls over the first's, each by the shortest of several times."""
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
