"""What of a network learns, and how it behaves while it does."""

from typing import Literal

from models.encoders.batch_norm import FrameBatchNorm
from models.network import Network
from training.recipe import Recipe


class TrainingMode:
    """Sets a network up for a training step as a recipe says.

    Attributes:
        batch_norm: whose statistics batch norm takes: the batch's, or the running ones, which then stay as they are.
        frozen: whether the encoder stays as it is.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.batch_norm: Literal["batch", "ranks", "running"] = recipe.batch_norm or (
            "running" if recipe.initial else "batch"
        )
        self.frozen = recipe.freeze == "encoder"

    def freeze(self, network: Network) -> None:
        """Mark what does not learn, before an optimizer is made."""
        if self.frozen:
            network.encoder.requires_grad_(requires_grad=False)

    def apply(self, network: Network) -> None:
        """Turn on what is only for training, where it learns: dropout, and the statistics of batch norm."""
        network.train()
        if self.frozen:
            network.encoder.eval()
        for module in network.modules():
            if isinstance(module, FrameBatchNorm):
                module.over_ranks = self.batch_norm == "ranks"
                if self.batch_norm == "running":
                    module.eval()
