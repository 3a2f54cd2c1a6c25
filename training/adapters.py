"""Low-rank adapters (LoRA; Hu et al., 2021): a frozen matrix W is trained as W + scale x up x down.

``down`` [rank, in] begins at random and ``up`` [out, rank] at zero, so that training begins with the model as it was.
At export the products are added to the matrices, so the model has the tensors that it had before.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from training.errors import RecipeError
from training.patterns import named_by
from training.recipe import Adapters

_DOWN, _UP = "adapter_down", "adapter_up"
# Layers whose products may have adapters; heads read the weights of theirs directly.
_ADAPTABLE = ("encoder.layers.", "attention_decoder.layers.")


class AdaptedLinear(nn.Linear):
    """A linear layer whose weight and bias are frozen, with a trained change of low rank."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.requires_grad_(requires_grad=False)
        self.adapter_down = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        nn.init.kaiming_uniform_(self.adapter_down, a=math.sqrt(5))
        self.adapter_up = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        self._scale = scale

    def forward(self, inputs: Tensor) -> Tensor:
        """Return [..., out] of ``inputs`` [..., in]."""
        return super().forward(inputs) + self._scale * linear(linear(inputs, self.adapter_down), self.adapter_up)


def add_adapters(network: nn.Module, config: Adapters, seed: int) -> None:
    """Freeze the linear layers that a recipe names, and give them adapters, the same ones for the same seed.

    Raises:
        RecipeError: if a pattern matches no such layer, or the rank is not below a layer's width.
    """
    layers = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(_ADAPTABLE)
    }
    if not layers:
        raise RecipeError("adapters are for the layers of a Conformer or an attention decoder", "adapters")
    chosen = named_by(config.layers, layers, "adapters.layers")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, layer in layers.items():
            if name not in chosen:
                continue
            if config.rank >= min(layer.weight.shape):
                wide = "x".join(map(str, layer.weight.shape))
                raise RecipeError(
                    f"adapters.rank {config.rank} must be below the width of {name}, {wide}", "adapters.rank"
                )
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, AdaptedLinear(layer, config.rank, config.scale))


def is_adapter(name: str) -> bool:
    """Return whether a weight is of an adapter."""
    return name.endswith((_DOWN, _UP))


def merged(state: Mapping[str, Tensor], config: Adapters | None) -> dict[str, Tensor]:
    """Return a state whose adapters are added to the weights that they change."""
    found = {name: value for name, value in state.items() if not is_adapter(name)}
    for name, down in state.items():
        if config and name.endswith(_DOWN):
            stem = name.removesuffix(_DOWN)
            change = config.scale * (state[stem + _UP] @ down)
            found[f"{stem}weight"] = found[f"{stem}weight"] + change
    return found
