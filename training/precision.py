"""Which arithmetic a forward pass uses."""

import torch

from training.recipe import Precision


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return the context in which matrix products have this precision; weights and their gradients stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
