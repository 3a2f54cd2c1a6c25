"""The precision of matrix products in training."""

import torch

from training.recipe import Precision

_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return a context in which matrix products have this precision; weights and their gradients stay float32."""
    half = _HALVES.get(precision)
    return torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None)


def set_products(precision: Precision) -> None:
    """Set whether float32 products on GPUs round their factors to 10 bits (TF32) or keep 23."""
    allowed = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
