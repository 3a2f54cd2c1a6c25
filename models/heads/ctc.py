"""The CTC head: one linear layer over the encoder's frames."""

from torch import Tensor, nn

from models.heads.scores import scores_of


class CTCHead(nn.Module):
    """Scores every label and the blank at every frame (Graves et al., 2006)."""

    def __init__(self, width: int, vocabulary_size: int) -> None:
        super().__init__()
        self.blank = vocabulary_size
        self.projection = nn.Linear(width, vocabulary_size + 1)

    def forward(self, encoded: Tensor) -> Tensor:
        """Return logits [batch, frames, labels + 1], the blank last, for ``encoded`` [batch, frames, width]."""
        return scores_of(self.projection, encoded)
