"""Triton kernels, which only a GPU imports. Tests compare each with plain PyTorch.

The functions here return a kernel where it may be used, and None elsewhere; see ``FastPaths.kernel``.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from models.device.fast_paths import FAST_PATHS, FastPath, PathState

# For fewer frames, the library's product is faster than our kernel of a feed-forward expansion.
FRAMES_WORTH_A_KERNEL = 4096
_WARM_UPS, _MEASURED = 3, 10
_AMPERE = (8, 0)  # compute capability

Kernel = Callable[..., Tensor]
DepthwiseHalves = tuple[Kernel, Kernel]
SwishExpansion = Callable[[Tensor, Tensor, Tensor | None], Tensor]
DecoderStep = tuple[Kernel, Kernel]
ResidualNorm = Callable[[Tensor, Tensor, float, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def products_suit(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether kernels with products of matrices are worth trying on a device.

    Before Ampere Triton does not use tensor cores: such kernels compile, but multiply in half precision without them,
    and spill registers (tests/models/kernels/compile_kernels.py). The library's products use them.
    """
    is_half = dtype in (torch.float16, torch.bfloat16)
    return not (device.type == "cuda" and is_half and torch.cuda.get_device_capability(device) < _AMPERE)


def gated_convolution_on(device: torch.device, dtype: torch.dtype) -> Kernel | None:
    """Return the kernel of the convolution module (convolution.py)."""

    def find() -> Kernel:
        from models.kernels.convolution import gated_convolution  # only a GPU has Triton

        return gated_convolution

    return FAST_PATHS.kernel(FastPath.CONVOLUTION, find, device, dtype)


def depthwise_halves_on(device: torch.device, dtype: torch.dtype) -> DepthwiseHalves | None:
    """Return the kernels of the subsampling's first and later convolutions (subsampling.py)."""

    def find() -> DepthwiseHalves:
        from models.kernels.subsampling import halved_features, halved_images  # only a GPU has Triton

        return halved_features, halved_images

    return FAST_PATHS.kernel(FastPath.SUBSAMPLING, find, device, dtype)


def residual_norm_on(device: torch.device, dtype: torch.dtype) -> ResidualNorm | None:
    """Return the kernel of sums and norms (residual_norm.py)."""

    def find() -> ResidualNorm:
        from models.kernels.residual_norm import residual_norm  # only a GPU has Triton

        return residual_norm

    return FAST_PATHS.kernel(FastPath.SUMS, find, device, dtype)


def relative_attention_on(device: torch.device, dtype: torch.dtype, share: int) -> Kernel | None:
    """Return the kernel of attention by content and distance (attention.py) for heads of ``share`` channels."""

    def find() -> Kernel | None:
        if not products_suit(device, dtype):
            return None
        from models.kernels.attention import relative_attention  # only a GPU has Triton

        return relative_attention

    return FAST_PATHS.kernel(FastPath.ATTENTION, find, device, dtype, share)


def decoder_step_on(device: torch.device, dtype: torch.dtype) -> DecoderStep | None:
    """Return the kernels of a step of an attention decoder (decoder_step.py): for products, and for attention."""

    def find() -> DecoderStep | None:
        if dtype == torch.float64 or not products_suit(device, dtype):  # kernels sum in float32
            return None
        from models.kernels.decoder_step import attend_from_token, multiply  # only a GPU has Triton

        return multiply, attend_from_token

    return FAST_PATHS.kernel(FastPath.DECODER_STEP, find, device, dtype)


def swish_expansion_on(device: torch.device, dtype: torch.dtype, shape: torch.Size) -> SwishExpansion | None:
    """Return the fastest way to launch the kernel of a feed-forward module's expansion (feed_forward.py).

    Args:
        device: the device.
        dtype: dtype of frames and weights.
        shape: shape of the weights.

    Returns:
        None too if the library's product and Swish are faster, for float32, which tensor cores round, or where rows are
        no multiple of 16 bytes.
    """
    columns, channels = shape

    def find() -> SwishExpansion | None:
        is_odd = columns * dtype.itemsize % 16 or channels * dtype.itemsize % 16
        if dtype == torch.float32 or is_odd or not products_suit(device, dtype):
            return None
        from models.kernels.feed_forward import TILES, swish_expansion  # only a GPU has Triton

        frames = torch.randn(FRAMES_WORTH_A_KERNEL, channels, dtype=dtype, device=device)
        weight, bias = torch.randn(shape, dtype=dtype, device=device), frames[0, :1].expand(columns).contiguous()
        ways: list[SwishExpansion] = [lambda *layer: silu(linear(*layer), inplace=True)]
        ways += [partial(swish_expansion, tile=tile) for tile in TILES]
        seconds = [_seconds_of(partial(way, frames, weight, bias), device) for way in ways]
        best = seconds.index(min(seconds))
        if not best:
            FAST_PATHS.note(FastPath.FEED_FORWARD, PathState.SLOWER)
        return ways[best] if best else None

    return FAST_PATHS.kernel(FastPath.FEED_FORWARD, find, device, dtype, shape)


def _seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that a GPU takes for a call; not for use during a capture."""
    for _ in range(_WARM_UPS):
        call()
    with torch.cuda.device(device):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        for _ in range(_MEASURED):
            call()
        ended.record()
        ended.synchronize()
    return float(began.elapsed_time(ended)) / 1000
