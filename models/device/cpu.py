"""What this CPU and this build of torch can compute: operations are tried.

Names and flags of processors are not enough: torch's libraries have conditions of their own, which change from
release to release. What depends on speed goes by the instruction set, so that it does not change between runs.
"""

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

# oneDNN chooses the layout of packed weights for this number of rows, 10 s of speech. Products of fewer rows then take
# up to a fifth less time, those of more rows the same.
_TYPICAL_ROWS = 125
# Errors of an operation that does not exist in this build, or not for this processor.
_REFUSALS = (AttributeError, NotImplementedError, RuntimeError)

# PyTorch and oneDNN each cache what they prepare for a shape of products, by default for the last 1,024 shapes. Batches
# hardly ever have the same shape twice, so caches of 32 are as fast, and take hundreds of megabytes less
# (docs/performance.md at 4f03a9e). Both read the environment at the first product.
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
def has_products(dtype: torch.dtype) -> bool:
    """Return whether this processor and oneDNN have instructions for products in bfloat16 or float16.

    Processors without them emulate such products, in up to ten times the time of float32. Flags decide, not a timing:
    beside a busy neighbour a timing says something else, and another dtype gives other transcripts than the replicas'.
    """
    try:
        if dtype is torch.float16:
            return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())  # noqa: SLF001
        if platform.machine() in ("aarch64", "arm64"):
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
        # On x86, oneDNN says that it supports bfloat16 where it emulates it with AVX-512.
        has_instructions = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001
        return has_instructions and can_pack(dtype)
    except _REFUSALS:
        return False


def fuses_swish_well() -> bool:
    """Return whether oneDNN's Swish, fused with a product in float32, is as fast as torch's after the product.

    With AVX2, oneDNN's takes a fifth of the product's time and torch's a twentieth; with AVX-512 both take the same.
    The instruction set decides, not a timing: the two round differently, and results must not change between runs.
    """
    return torch.backends.cpu.get_cpu_capability() != "AVX2"
