"""NovoGrad (Ginsburg et al., 2019, arXiv 1905.11286), with which Jasper and QuartzNet were trained."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# Numbers of a tensor that a CPU changes at a time, so that they stay in its caches from one operation to the next.
_PIECE = 2**16
_EPSILON = 1e-8


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
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

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
                square = torch.linalg.vector_norm(parameter.grad, dtype=torch.float32).square()
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                    state["square"] = square
                else:
                    state["square"].mul_(second).add_(square, alpha=1 - second)
                norm = state["square"].sqrt() + _EPSILON
                for weight, gradient, mean in _pieces(parameter, parameter.grad, state["mean"]):
                    change = (gradient / norm).add_(weight, alpha=group["weight_decay"])
                    weight.add_(mean.mul_(first).add_(change), alpha=-group["lr"])


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield tensors of one shape piece by piece on a CPU; whole on a GPU, for which each piece is a launch."""
    if tensors[0].device.type == "cpu" and all(tensor.is_contiguous() for tensor in tensors):
        return zip(*(torch.split(tensor.view(-1), _PIECE) for tensor in tensors), strict=True)
    return iter([tensors])
