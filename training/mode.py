"""Which weights of a network are trained, and its mode during training."""

from typing import Literal

from torch import nn

from models.encoders.batch_norm import FrameBatchNorm
from models.network import Network
from training.adapters import is_adapter
from training.errors import RecipeError
from training.patterns import named_by
from training.recipe import Recipe


class TrainingMode:
    """Sets up a network for training by a recipe.

    Attributes:
        batch_norm: the statistics of batch norm: those of the batch, of all processes' batches, or the running ones,
            which then do not change.
        frozen: whether the whole encoder is frozen.
    """

    def __init__(self, network: Network, recipe: Recipe) -> None:
        """Freeze weights, but no adapter; an optimizer is made afterwards.

        Raises:
            RecipeError: if a pattern matches no weight, or nothing is left to train.
        """
        self.batch_norm: Literal["batch", "ranks", "running"] = recipe.batch_norm or (
            "running" if recipe.initial else "batch"
        )
        weights = {name: weight for name, weight in network.named_parameters() if not is_adapter(name)}
        for name in named_by(recipe.freeze or (), weights, "freeze"):
            weights[name].requires_grad = False
        if not any(weight.requires_grad for weight in network.parameters()):
            raise RecipeError("freeze leaves nothing to train", "freeze")
        self.frozen = _is_still(network.encoder)
        self._still = [module for module in network.modules() if _is_still(module)] if recipe.freeze else []

    def apply(self, network: Network, *, is_silence: bool) -> None:
        """Set training mode, except of frozen modules and of batch norm with running statistics.

        Args:
            network: the network.
            is_silence: whether the next batch holds silence in place of clips; batch norm does not count it.
        """
        network.train()
        for module in self._still:
            module.eval()
        for module in network.modules():
            if isinstance(module, FrameBatchNorm):
                module.over_ranks = self.batch_norm == "ranks"
                module.is_silence = is_silence
                if self.batch_norm == "running":
                    module.eval()


def _is_still(module: nn.Module) -> bool:
    """Return whether a module has weights, and all are frozen."""
    weights = list(module.parameters())
    return bool(weights) and not any(weight.requires_grad for weight in weights)
