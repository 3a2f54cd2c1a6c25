"""The trained part of a language identifier: an encoder and a head."""

import torch
from torch import Tensor, nn

from models.config import IdentifierConfig
from models.encoders.jasper import JasperEncoder, Shortcut, SubBlock
from models.heads.language import LanguageHead


class IdentifierNetwork(nn.Module):
    """An encoder of convolutions, and a head that scores languages."""

    def __init__(self, config: IdentifierConfig) -> None:
        """Build a network with random weights."""
        super().__init__()
        self.encoder = JasperEncoder(config.encoder)
        self.head = LanguageHead(config)

    @classmethod
    def without_weights(cls, config: IdentifierConfig) -> "IdentifierNetwork":
        """Return a network whose tensors have shapes only, to be replaced by loaded ones; this costs no memory."""
        with torch.device("meta"):
            return cls(config)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores of the labels, [batch, labels], float32.

        Args:
            features: [batch, mels, frames], in the dtype of the encoder; padding may hold anything.
            lengths: frames of each row, [batch].
        """
        scores: Tensor = self.head(*self.encoder(features, lengths))
        return scores

    def fold(self) -> None:
        """Prepare inference: let the encoder's convolutions do the work of its batch norms."""
        for module in [module for module in self.encoder.modules() if isinstance(module, SubBlock | Shortcut)]:
            module.fold()
