"""Optimizers: AdamW (Loshchilov and Hutter, 2019) or NovoGrad, with or without Muon for the encoder's matrices."""

from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

from training import recipe
from training.muon import Muon
from training.novograd import NovoGrad

# Tensors of a weight's size in the state of each optimizer.
_MOMENTS: dict[type[Optimizer], int] = {AdamW: 2, NovoGrad: 1, Muon: 1}


class Optimizers:
    """Several optimizers with separate weights, used as one."""

    def __init__(self, *parts: Optimizer) -> None:
        self._parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers."""
        return [group for part in self._parts for group in part.param_groups]

    @property
    def bytes(self) -> int:
        """The memory of the optimizers' states after the first step."""
        return sum(
            _MOMENTS[type(part)] * weight.numel() * weight.element_size()
            for part in self._parts
            for group in part.param_groups
            for weight in group["params"]
        )

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Change the weights by their gradients."""
        for part in self._parts:
            part.step()

    def forget(self) -> None:
        """Forget all moments, as if no step had been taken."""
        for part in self._parts:
            part.state.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` takes."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        for part, own in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(own)


def new_optimizer(network: nn.Module, config: recipe.Optimizer) -> Optimizers:
    """Return an optimizer of the network's weights; its learning rate is set at each step.

    Norms and biases, also those of attention, are not decayed, because pulling them to zero gains nothing.
    """
    matrices = encoder_matrices(network) if config.matrices == "muon" else {}
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and name not in matrices:
            (kept if parameter.dim() == 1 or name.endswith("bias") else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": kept, "weight_decay": 0.0}]
    betas = (config.betas[0], config.betas[1])
    rest: Optimizer
    if config.algorithm == "novograd":
        rest = NovoGrad(groups, lr=config.peak, betas=betas)
    else:
        rest = AdamW(groups, lr=config.peak, betas=betas, fused=True)
    if not matrices:
        return Optimizers(rest)
    return Optimizers(Muon(matrices.values(), lr=config.peak, weight_decay=config.weight_decay), rest)


def encoder_matrices(network: nn.Module) -> dict[str, nn.Parameter]:
    """Return the encoder's trainable matrices by name: of linear layers and of convolutions of width 1."""
    matrices: dict[str, nn.Parameter] = {}
    for name, module in network.named_modules():
        is_matrix = isinstance(module, nn.Linear) or (isinstance(module, nn.Conv1d) and module.kernel_size == (1,))
        if name.startswith("encoder.") and is_matrix:
            assert isinstance(module.weight, nn.Parameter)
            if not module.weight.requires_grad:  # frozen
                continue
            matrices[f"{name}.weight"] = module.weight
    return matrices
