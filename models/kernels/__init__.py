"""Triton kernels, each beside a twin in plain PyTorch that its tests hold it to; only a GPU imports them."""

import logging
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

Kernel = TypeVar("Kernel")

log = logging.getLogger("steno.models")

GatedConvolution = Callable[..., Tensor]
RelativeAttentionKernel = Callable[..., Tensor]
DepthwiseHalves = tuple[Callable[..., Tensor], Callable[..., Tensor]]
ResidualNorm = Callable[[Tensor, Tensor, float, Tensor, Tensor, float], tuple[Tensor, Tensor]]


@cache
def gated_convolution_on(device: torch.device, dtype: torch.dtype) -> GatedConvolution | None:
    """Return the kernel of the convolution module (convolution.py), once it has run; None where it cannot."""

    def tried() -> GatedConvolution:
        from models.kernels.convolution import gated_convolution  # only a GPU has Triton

        frames = torch.zeros(1, 8, 128, dtype=dtype, device=device)
        starts = torch.tensor([0, 8], device=device)
        weight, bias = frames[0, :3, :64].reshape(64, 1, 3), frames[0, 0, :64]
        gated_convolution(frames, starts, starts[1:], 8, weight, bias, swish=True)
        return gated_convolution

    return _if_it_runs(tried, device, "the convolution module")


@cache
def depthwise_halves_on(device: torch.device, dtype: torch.dtype) -> DepthwiseHalves | None:
    """Return the kernels of the subsampling's first convolutions and of its later ones (subsampling.py).

    They have run once then; None where they cannot.
    """

    def tried() -> DepthwiseHalves:
        from models.kernels.subsampling import halved_features, halved_images  # only a GPU has Triton

        features, lengths = torch.zeros(1, 16, 16, dtype=dtype, device=device), torch.tensor([8], device=device)
        weight = torch.zeros(32, 1, 3, 3, dtype=dtype, device=device)
        bias = weight[:, 0, 0, 0].contiguous()
        images = halved_features(features, lengths, weight, bias, weight, bias)
        halved_images(images, lengths, weight, bias)
        return halved_features, halved_images

    return _if_it_runs(tried, device, "the subsampling")


@cache
def residual_norm_on(device: torch.device, dtype: torch.dtype) -> ResidualNorm | None:
    """Return the kernel of sums and norms (residual_norm.py), once it has run; None where it cannot."""

    def tried() -> ResidualNorm:
        from models.kernels.residual_norm import residual_norm  # only a GPU has Triton

        frames = torch.zeros(2, 64, dtype=dtype, device=device)
        residual_norm(frames, frames, 0.5, frames[0], frames[0], 1e-5)
        return residual_norm

    return _if_it_runs(tried, device, "sums and norms")


@cache
def relative_attention_on(device: torch.device, dtype: torch.dtype, share: int) -> RelativeAttentionKernel | None:
    """Return the kernel of attention by content and distance (attention.py) for heads of ``share`` channels.

    It has run once then; None where it cannot.
    """

    def tried() -> RelativeAttentionKernel:
        from models.kernels.attention import relative_attention  # only a GPU has Triton

        merged = torch.zeros(1, 8, 3 * share, dtype=dtype, device=device)
        table, bias = torch.zeros(1, 15, share, dtype=dtype, device=device), merged[0, :1, :share]
        starts = torch.tensor([0, 8], device=device)
        relative_attention(merged, table, bias, bias, starts, starts[1:], 8, None)
        return relative_attention

    return _if_it_runs(tried, device, "attention")


def _if_it_runs(tried: Callable[[], Kernel], device: torch.device, what: str) -> Kernel | None:
    if device.type != "cuda":
        return None
    try:
        return tried()
    except Exception as error:  # noqa: BLE001  # of a compiler, which has many kinds
        # Another GPU, or another Triton: slower, and never wrong.
        log.warning("no kernel of %s, plain operations do its work: %s", what, error)
        return None
