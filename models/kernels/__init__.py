"""Triton kernels, which only a GPU imports. Tests compare each with plain PyTorch."""

from collections.abc import Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from models.device.fast_paths import FAST_PATHS, FastPath, PathState

Kernel = TypeVar("Kernel")
Arguments = ParamSpec("Arguments")

# For fewer frames, the library's product is faster than our kernel of a feed-forward expansion.
FRAMES_WORTH_A_KERNEL = 4096
_WARM_UPS, _MEASURED = 3, 10
_AMPERE = (8, 0)  # compute capability

GatedConvolution = Callable[..., Tensor]
RelativeAttentionKernel = Callable[..., Tensor]
DepthwiseHalves = tuple[Callable[..., Tensor], Callable[..., Tensor]]
SwishExpansion = Callable[[Tensor, Tensor, Tensor | None], Tensor]
DecoderStep = tuple[Callable[..., Tensor], Callable[..., Tensor]]
ResidualNorm = Callable[[Tensor, Tensor, float, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def _allowed(
    path: FastPath,
) -> Callable[[Callable[Arguments, Kernel | None]], Callable[Arguments, Kernel | None]]:
    """Make a function that finds a kernel find it once, and return None where its path is not allowed."""

    def decorate(find: Callable[Arguments, Kernel | None]) -> Callable[Arguments, Kernel | None]:
        @wraps(find)
        def found(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Kernel | None:
            return FAST_PATHS.once((find, *args), lambda: find(*args, **kwargs)) if FAST_PATHS.allows(path) else None

        return found

    return decorate


def products_suit(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether kernels with products of matrices are worth trying on a device.

    Before Ampere Triton does not use tensor cores: such kernels compile, but multiply in half precision without them,
    and spill registers (tests/models/kernels/compile_kernels.py). The library's products use them.
    """
    is_half = dtype in (torch.float16, torch.bfloat16)
    return not (device.type == "cuda" and is_half and torch.cuda.get_device_capability(device) < _AMPERE)


@_allowed(FastPath.CONVOLUTION)
def gated_convolution_on(device: torch.device, dtype: torch.dtype) -> GatedConvolution | None:
    """Return the kernel of the convolution module (convolution.py), after a trial run; None if it does not run."""

    def tried() -> GatedConvolution:
        from models.kernels.convolution import gated_convolution  # only a GPU has Triton

        frames = torch.zeros(1, 8, 128, dtype=dtype, device=device)
        starts = torch.tensor([0, 8], device=device)
        weight, bias = frames[0, :3, :64].reshape(64, 1, 3), frames[0, 0, :64]
        gated_convolution(frames, starts, starts[1:], 8, weight, bias, swish=True)
        return gated_convolution

    return if_it_runs(tried, device, FastPath.CONVOLUTION)


@_allowed(FastPath.SUBSAMPLING)
def depthwise_halves_on(device: torch.device, dtype: torch.dtype) -> DepthwiseHalves | None:
    """Return the kernels of the subsampling's first and later convolutions (subsampling.py).

    They had a trial run; None if they do not run.
    """

    def tried() -> DepthwiseHalves:
        from models.kernels.subsampling import halved_features, halved_images  # only a GPU has Triton

        features, lengths = torch.zeros(1, 16, 16, dtype=dtype, device=device), torch.tensor([8], device=device)
        weight = torch.zeros(32, 1, 3, 3, dtype=dtype, device=device)
        bias = weight[:, 0, 0, 0].contiguous()
        images = halved_features(features, lengths, weight, bias, weight, bias)
        halved_images(images, lengths, weight, bias)
        return halved_features, halved_images

    return if_it_runs(tried, device, FastPath.SUBSAMPLING)


@_allowed(FastPath.SUMS)
def residual_norm_on(device: torch.device, dtype: torch.dtype) -> ResidualNorm | None:
    """Return the kernel of sums and norms (residual_norm.py), after a trial run; None if it does not run."""

    def tried() -> ResidualNorm:
        from models.kernels.residual_norm import residual_norm  # only a GPU has Triton

        frames = torch.zeros(2, 64, dtype=dtype, device=device)
        residual_norm(frames, frames, 0.5, frames[0], frames[0], 1e-5)
        return residual_norm

    return if_it_runs(tried, device, FastPath.SUMS)


@_allowed(FastPath.ATTENTION)
def relative_attention_on(device: torch.device, dtype: torch.dtype, share: int) -> RelativeAttentionKernel | None:
    """Return the kernel of attention by content and distance (attention.py) for heads of ``share`` channels.

    It had a trial run; None if it does not run, or products do not suit it.
    """

    def tried() -> RelativeAttentionKernel | None:
        if not products_suit(device, dtype):
            return None
        from models.kernels.attention import relative_attention  # only a GPU has Triton

        merged = torch.zeros(1, 8, 3 * share, dtype=dtype, device=device)
        table, bias = torch.zeros(1, 15, share, dtype=dtype, device=device), merged[0, :1, :share]
        starts = torch.tensor([0, 8], device=device)
        relative_attention(merged, table, bias, bias, starts, starts[1:], 8, None)
        return relative_attention

    return if_it_runs(tried, device, FastPath.ATTENTION)


@_allowed(FastPath.DECODER_STEP)
def decoder_step_on(device: torch.device, dtype: torch.dtype) -> DecoderStep | None:
    """Return the kernels of a step of an attention decoder (decoder_step.py): for products, and for attention.

    They had a trial run; None if they do not run.
    """
    if dtype == torch.float64:  # kernels sum in float32
        return None

    def tried() -> DecoderStep | None:
        if not products_suit(device, dtype):
            return None
        from models.kernels.decoder_step import attend_from_token, multiply  # only a GPU has Triton

        rows = torch.zeros(1, 64, dtype=dtype, device=device)
        keys, bounds = rows.view(1, 1, 1, 64), torch.zeros(1, dtype=torch.int64, device=device)
        attend_from_token(rows, keys, keys, bounds, own=False)
        multiply(rows, rows.expand(64, 64).contiguous(), rows[0], norm=(rows[0], rows[0], 1.0))
        return multiply, attend_from_token

    return if_it_runs(tried, device, FastPath.DECODER_STEP)


@_allowed(FastPath.FEED_FORWARD)
def swish_expansion_on(device: torch.device, dtype: torch.dtype, shape: torch.Size) -> SwishExpansion | None:
    """Return the fastest way to launch the kernel of a feed-forward module's expansion (feed_forward.py).

    Args:
        device: the device.
        dtype: dtype of frames and weights.
        shape: shape of the weights.

    Returns:
        None if it does not run or products do not suit the device, if the library's product and Swish are faster, for
        float32, which tensor cores round, or where rows are no multiple of 16 bytes.
    """
    columns, channels = shape
    if dtype == torch.float32 or columns * dtype.itemsize % 16 or channels * dtype.itemsize % 16:
        return None

    def tried() -> SwishExpansion | None:
        if not products_suit(device, dtype):
            return None
        from models.kernels.feed_forward import LAUNCHES, swish_expansion  # only a GPU has Triton

        frames = torch.randn(FRAMES_WORTH_A_KERNEL, channels, dtype=dtype, device=device)
        weight, bias = torch.randn(shape, dtype=dtype, device=device), frames[0, :1].expand(columns).contiguous()
        ways: list[SwishExpansion] = [lambda *layer: silu(linear(*layer), inplace=True)]
        ways += [partial(swish_expansion, launch=launch) for launch in LAUNCHES]
        seconds = [_seconds_of(partial(way, frames, weight, bias), device) for way in ways]
        best = seconds.index(min(seconds))
        FAST_PATHS.note(FastPath.FEED_FORWARD, PathState.USED if best else PathState.SLOWER)
        return ways[best] if best else None

    with torch.no_grad():
        return if_it_runs(tried, device, FastPath.FEED_FORWARD)


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


def if_it_runs(tried: Callable[[], Kernel | None], device: torch.device, path: FastPath) -> Kernel | None:
    """Return the result of ``tried`` where kernels run; None elsewhere, and if it fails, which bars the path.

    Raises:
        RuntimeError: if memory ran out.
    """
    if FAST_PATHS.suits(device):
        with FAST_PATHS.trying(path):
            return tried()
    return None
