"""Optimizers: AdamW (Loshchilov and Hutter, 2019) or NovoGrad, with or without Muon for the encoder's matrices."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from training import recipe
from training.errors import RecipeError
from training.novograd import NovoGrad
from training.patterns import named_by

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
    """Return an optimizer of the network's weights; its learning rate is set at each step, times a group's ``factor``.

    Norms and biases, also those of attention, are not decayed, because pulling them to zero gains nothing.

    Raises:
        RecipeError: if other rates are for weights that are not trained, or two for one weight.
    """
    trained = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
    factors = _factors(trained, config.rates or ())
    matrices = encoder_matrices(network) if config.matrices == "muon" else set()
    rest_of: dict[tuple[float, float], list[nn.Parameter]] = {}
    matrices_of: dict[float, list[nn.Parameter]] = {}
    for name, weight in trained.items():
        factor = factors.get(name, 1.0)
        if name in matrices:
            matrices_of.setdefault(factor, []).append(weight)
        else:
            decay = 0.0 if weight.dim() == 1 or name.endswith("bias") else config.weight_decay
            rest_of.setdefault((factor, decay), []).append(weight)
    groups = [{"params": own, "weight_decay": decay, "factor": factor} for (factor, decay), own in rest_of.items()]
    betas = (config.betas[0], config.betas[1])
    parts: list[Optimizer] = []
    if matrices_of:
        of_muon = [{"params": own, "factor": factor} for factor, own in matrices_of.items()]
        # Steps as large as AdamW's (Liu et al., 2025), so that both share a learning rate.
        parts.append(Muon(of_muon, config.peak, config.weight_decay, adjust_lr_fn="match_rms_adamw"))
    if groups and config.algorithm == "novograd":
        parts.append(NovoGrad(groups, lr=config.peak, betas=betas))
    elif groups:
        parts.append(AdamW(groups, lr=config.peak, betas=betas, fused=True))
    return Optimizers(*parts)


def _factors(trained: Iterable[str], rates: Sequence[recipe.Rate]) -> dict[str, float]:
    """Return the factor of the learning rate of each weight that has one."""
    factors: dict[str, float] = {}
    for number, rate in enumerate(rates):
        key = f"optimizer.rates[{number}].weights"
        found = named_by(rate.weights, trained, key)
        if twice := sorted(found & factors.keys()):
            raise RecipeError(f"{key}: {twice[0]} has another rate already", key)
        factors |= dict.fromkeys(found, rate.factor)
    return factors


def encoder_matrices(network: nn.Module) -> set[str]:
    """Return the names of the encoder's matrices, of linear layers."""
    linear = {f"{name}.weight" for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    return {name for name in linear if name.startswith("encoder.")}
