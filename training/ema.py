"""The moving average of a network's weights, which is better than the weights of a single step (Polyak averaging)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """An exponential moving average of a network's state.

    Attributes:
        state: the averaged state dict. Integer counters are those of the network.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.state: dict[str, Tensor] = {name: value.clone() for name, value in network.state_dict().items()}
        self._decay = decay

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Add the state after a step, counted from 0.

        The first steps weigh more, so that the random initial weights fade soon.
        """
        decay = min(self._decay, (1 + step) / (10 + step))
        averaged, current = [], []
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                averaged.append(self.state[name])
                current.append(value)
            else:
                self.state[name].copy_(value)
        # All at once: a GPU takes less time for a small tensor than the host to launch it.
        get_ema_multi_avg_fn(decay)(averaged, current, None)  # type: ignore[no-untyped-call]  # torch has no types for it

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a saved average of the same network."""
        for name, value in self.state.items():
            value.copy_(state[name])
