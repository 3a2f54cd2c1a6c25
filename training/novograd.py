"""NovoGrad (Ginsburg et al., 2019, arXiv 1905.11286), with which Jasper and QuartzNet were trained."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class NovoGrad(Optimizer):
    """Gradients are divided by their norm over each tensor, decay is added, and momentum moves the weights.

    Each tensor has one number as its second moment, v; with the gradient g, v is beta2 v + (1 - beta2) |g|^2, and
    |g|^2 at the first step. The first moment m is beta1 m + g / (sqrt(v) + eps) + decay x weight.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.95, 0.5),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by their gradients."""
        assert closure is None, "the gradient is there already"
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                square = parameter.grad.float().square().sum()
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                    state["square"] = square.clone()
                else:
                    state["square"].mul_(second).add_(square, alpha=1 - second)
                change = parameter.grad / (state["square"].sqrt() + group["eps"])
                change.add_(parameter, alpha=group["weight_decay"])
                state["mean"].mul_(first).add_(change)
                parameter.add_(state["mean"], alpha=-group["lr"])
