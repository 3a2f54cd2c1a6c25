"""Triton kernels, each beside a twin in plain PyTorch that its tests hold it to; only a GPU imports them."""

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

log = logging.getLogger("steno.models")

GatedConvolution = Callable[..., Tensor]


@cache
def gated_convolution_on(device: torch.device, dtype: torch.dtype) -> GatedConvolution | None:
    """Return the kernel of the convolution module (convolution.py), once it has run; None where it cannot."""
    if device.type != "cuda":
        return None
    try:
        from models.kernels.convolution import gated_convolution  # only a GPU has Triton

        frames = torch.zeros(1, 8, 128, dtype=dtype, device=device)
        valid = torch.ones(1, 8, dtype=torch.bool, device=device)
        gated_convolution(frames, valid, frames[0, :3, :64].reshape(64, 1, 3), frames[0, 0, :64], swish=True)
    except Exception as error:  # noqa: BLE001  # of a compiler, which has many kinds
        # Another GPU, or another Triton: slower, and never wrong.
        log.warning("no kernel of the convolution module, plain operations do its work: %s", error)
        return None
    return gated_convolution
