"""Precisions of models: which exist, which is a device's default, and how products round."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from models.device.cpu import has_products, multiplies_eight_bits_exactly

log = logging.getLogger("steno.models")

Precision = Literal["float32", "tf32", "bfloat16", "float16", "int8"]
_PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Of weights and, except with int8, of activations. With tf32, tensor cores round the factors of products to 10 bits.
DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}
# Compute capabilities of the first tensor cores, which multiply float16, and of the first for bfloat16 and TF32.
_VOLTA, _AMPERE = (7, 0), (8, 0)
_FLOAT16_MAX = torch.finfo(torch.float16).max
# Measured with weights of 7 bits, whose sums are exact without VNNI (docs/performance.md at 4f03a9e).
_NO_EIGHT_BITS = (
    "int8 is for CPUs with products in 8 bits (VNNI); use float32 here: "
    "without VNNI, int8 would be only 1.1 to 1.3 times as fast"
)


class Float16OverflowError(ArithmeticError):
    """Values of a model exceeded the range of float16, so its transcript would be garbage."""


def default_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype that a device is fastest in without losing accuracy.

    On GPUs that is bfloat16 since Ampere, float16 on Volta and Turing, which have no units for bfloat16, and float32 on
    older ones. On CPUs it is bfloat16 where there are instructions for its products, else float32. docs/performance.md
    has word error rates.
    """
    if device.type != "cuda":
        return torch.bfloat16 if has_products(torch.bfloat16) else torch.float32
    capability = torch.cuda.get_device_capability(device)
    if capability >= _AMPERE:
        return torch.bfloat16
    return torch.float16 if capability >= _VOLTA else torch.float32


def dtype_of_identifier(precision: str, device: torch.device) -> torch.dtype:
    """Return the dtype of a language identifier: bfloat16 beside a model in bfloat16, else float32.

    Its convolutions have no int8, so beside int8 it has the device's default. Overflows in float16 would go unnoticed.
    """
    dtype = default_dtype(device) if precision in ("auto", "int8") else DTYPES[precision]
    return torch.bfloat16 if dtype is torch.bfloat16 else torch.float32


def checked_precision(dtype: torch.dtype | str, device: torch.device) -> Precision:
    """Return the precision of a name or a dtype.

    Raises:
        ValueError: if there is no such precision, or not on this device.
    """
    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    for known in _PRECISIONS:
        if name == known:
            _check_device(known, device)
            return known
    raise ValueError(f"dtype {name} is not supported; use one of {', '.join(DTYPES)}")


def _check_device(precision: Precision, device: torch.device) -> None:
    if precision == "tf32" and not (device.type == "cuda" and torch.cuda.get_device_capability(device) >= _AMPERE):
        raise ValueError("tf32 is for GPUs since Ampere; use float32 here")
    if precision == "int8" and device.type != "cpu":
        raise ValueError("int8 is for CPUs; use another dtype here")
    if precision == "int8" and not multiplies_eight_bits_exactly():
        raise ValueError(_NO_EIGHT_BITS)


def warn_of_slow_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Log a warning if a dtype is much slower than another one on this device."""
    if device.type == "cpu" and dtype in (torch.bfloat16, torch.float16):
        if not has_products(dtype):
            name = str(dtype).removeprefix("torch.")
            log.warning("This CPU has no products in %s, and emulates them; float32 is faster.", name)
    elif device.type == "cuda" and dtype is torch.bfloat16 and default_dtype(device) is torch.float16:
        log.warning("This GPU has no units for bfloat16, and emulates it; float16 is several times as fast.")


def round_products(device: torch.device, precision: Precision) -> None:
    """On a GPU, let products round as the precision says, and sum all products in float32.

    By default, convolutions in float32 round their factors to 10 bits (TF32), and products in half precision may round
    partial sums. These settings are the process's, so a model sets them for each batch.
    """
    if device.type == "cuda":
        matmul = torch.backends.cuda.matmul
        matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        matmul.allow_bf16_reduced_precision_reduction = False
        matmul.allow_fp16_reduced_precision_reduction = False


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply in full float32 in the block, even with tf32, because features need it."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, False
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def check_range(network: nn.Module) -> None:
    """Check that float16 can hold the weights of a network.

    Raises:
        ValueError: if it cannot; the message names a weight.
    """
    for name, weight in network.state_dict().items():
        if weight.is_floating_point() and not weight.is_meta and weight.numel() and weight.abs().max() > _FLOAT16_MAX:
            largest = float(weight.abs().max())
            raise ValueError(
                f"{name} has a value of {largest:.3g}, beyond the range of float16; use bfloat16 or float32"
            )


def check_overflow(probabilities: npt.NDArray[np.float32]) -> None:
    """Check that no value of a model was beyond float16's range: its probabilities, or their logarithms, are finite.

    Raises:
        Float16OverflowError: if one was.
    """
    if not np.isfinite(probabilities).all():
        raise Float16OverflowError(
            "values of the model went beyond the range of float16 (65,504); use bfloat16 or float32"
        )
