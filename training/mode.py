"""Which weights of a network are trained, and its mode during training."""

from typing import Literal

from models.encoders.batch_norm import FrameBatchNorm
from models.network import Network
from training.recipe import Recipe


class TrainingMode:
    """Sets up a network for training by a recipe.

    Attributes:
        batch_norm: the statistics of batch norm: those of the batch, of all processes' batches, or the running ones,
            which then do not change.
        frozen: whether the encoder is frozen.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.batch_norm: Literal["batch", "ranks", "running"] = recipe.batch_norm or (
            "running" if recipe.initial else "batch"
        )
        self.frozen = recipe.freeze == "encoder"

    def freeze(self, network: Network) -> None:
        """Freeze weights; call it before an optimizer is made."""
        if self.frozen:
            network.encoder.requires_grad_(requires_grad=False)

    def apply(self, network: Network, *, is_silence: bool) -> None:
        """Set training mode, except of a frozen encoder and of batch norm with running statistics.

        Args:
            network: the network.
            is_silence: whether the next batch holds silence in place of clips; batch norm does not count it.
        """
        network.train()
        if self.frozen:
            network.encoder.eval()
        for module in network.modules():
            if isinstance(module, FrameBatchNorm):
                module.over_ranks = self.batch_norm == "ranks"
                module.is_silence = is_silence
                if self.batch_norm == "running":
                    module.eval()
