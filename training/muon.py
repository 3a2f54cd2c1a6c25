"""The Muon optimizer (Jordan et al., 2024): steps of equal size in every direction of a matrix.

The momentum of a matrix is replaced by the nearest orthogonal matrix, found by a few matrix products (Newton-Schulz
iteration), and scaled to the size of AdamW's steps (Liu et al., 2025), so that both share a learning rate. PyTorch's
own Muon takes matrices only; this one also takes kernels of width 1, and computes matrices of one shape together.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# Coefficients of x, x^3 and x^5 in the polynomial of an iteration, which is steep at 0 (Jordan et al., 2024).
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MOMENTUM = 0.95
_ADAMW_RMS = 0.2  # root mean square of AdamW's steps (Liu et al., 2025)


class Muon(Optimizer):
    """Muon with Nesterov's momentum and decoupled weight decay.

    Args:
        groups: groups of matrices [out, in], or of kernels of convolutions [out, in, 1].
        lr: learning rate, comparable to AdamW's.
        weight_decay: times the learning rate, the share of the weights that a step removes.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, weight_decay: float) -> None:
        super().__init__(list(groups), {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by their gradients."""
        assert closure is None, "no loss is computed here"
        for group in self.param_groups:
            of_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    of_shape[weight.shape].append(weight)
            for weights in of_shape.values():
                self._move(weights, group)

    def _move(self, weights: list[nn.Parameter], group: dict[str, Any]) -> None:
        steps = orthogonalized(torch.stack([self._direction(weight) for weight in weights]))
        scale = _ADAMW_RMS * math.sqrt(max(steps.shape[1:]))
        for weight, step in zip(weights, steps, strict=True):
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.add_(step.view_as(weight), alpha=-group["lr"] * scale)

    def _direction(self, weight: nn.Parameter) -> Tensor:
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].mul_(_MOMENTUM).add_(weight.grad)
        return weight.grad.add(state["momentum"], alpha=_MOMENTUM).flatten(1)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, whose singular values are about 1 (0.7 to 1.2; tiny ones less).

    Args:
        matrices: [count, rows, columns]; a matrix of zeros stays zero.
    """
    linear, cubic, quintic = _COEFFICIENTS
    is_tall = matrices.size(1) > matrices.size(2)
    found = matrices.mT if is_tall else matrices
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        squared = found @ found.mT
        factor = torch.baddbmm(squared, squared, squared, beta=cubic, alpha=quintic)
        found = torch.baddbmm(found, factor, found, beta=linear)
    return found.mT.contiguous() if is_tall else found
