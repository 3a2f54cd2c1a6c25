"""Telling the frames of an encoder which language is spoken, before a transducer or CTC head sees them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class LanguagePrompt(nn.Module):
    """Two linear layers over each frame and the place of its utterance's language (one of ``places``)."""

    def __init__(self, width: int, places: int) -> None:
        """Build it with random weights, for frames of ``width``."""
        super().__init__()
        self._width = width
        self.expand = nn.Linear(width + places, 2 * width)
        self.contract = nn.Linear(2 * width, width)

    def forward(self, frames: Tensor, places: Tensor) -> Tensor:
        """Return frames [batch, time, width] that know their language, given its place for each row, int64 [batch]."""
        weight, bias = self.expand.weight, self.expand.bias
        # The product with a one at a place, and zeros elsewhere, is a column of the weights.
        of_language = bias + weight[:, self._width :].T.index_select(0, places)
        prompted: Tensor = self.contract(torch.relu(linear(frames, weight[:, : self._width]) + of_language[:, None]))
        return prompted
