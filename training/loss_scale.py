"""Scaling a loss, so that small gradients do not vanish in float16 (Micikevicius et al., 2018, arXiv 1710.03740)."""

from collections.abc import Iterable

import torch
from torch import nn

_FIRST = 2.0**16
_HIGHEST = 2.0**24
# Steps without an overflow after which the scale is doubled.
_PATIENCE = 1000


class LossScale:
    """A factor that is halved when gradients overflow, and doubled after a while without overflow.

    Attributes:
        value: the factor; always 1 without scaling.
    """

    def __init__(self, *, scales: bool) -> None:
        self._scales = scales
        self.value = _FIRST if scales else 1.0
        self._good_steps = 0

    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide gradients by the factor."""
        if self.value != 1.0:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_mul_(gradients, 1 / self.value)

    def after_step(self, *, overflowed: bool) -> None:
        """Update the factor after a step."""
        if not self._scales:
            return
        self._good_steps = 0 if overflowed else self._good_steps + 1
        if overflowed:
            self.value /= 2
        elif self._good_steps == _PATIENCE:
            self._good_steps = 0
            self.value = min(self.value * 2, _HIGHEST)

    @property
    def can_shrink(self) -> bool:
        """Whether a smaller factor may help after an overflow."""
        return self._scales and self.value > 1.0

    def state(self) -> dict[str, float]:
        """Return what ``restore`` takes."""
        return {"value": self.value, "good_steps": self._good_steps}

    def restore(self, state: dict[str, float]) -> None:
        """Restore a state."""
        self.value, self._good_steps = state["value"], int(state["good_steps"])
