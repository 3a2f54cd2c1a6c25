"""A predictor without a network of its own: embeddings of the last few labels (Ghodsi et al., 2020)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad

from models.heads.transducer import Predictor, PredictorState


class StatelessPredictor(nn.Module):
    """Joins the embeddings of the last labels, each place with a table of its own, the newest first.

    The newest label has at least half of the width; the others share the rest. The blank stands for labels before the
    first, and its embedding, the last row of each table, is zero in models that NeMo trained.
    """

    def __init__(self, vocabulary_size: int, width: int, context: int, *, is_normalized: bool) -> None:
        """Build random tables.

        Args:
            vocabulary_size: labels, without the blank.
            width: of the output; at least twice ``context``.
            context: how many labels it reads.
            is_normalized: whether the output has mean 0 and variance 1.
        """
        super().__init__()
        self.blank = vocabulary_size
        self.width = width
        self.context = context
        self._is_normalized = is_normalized
        older = width // 2 // context
        widths = [width - (context - 1) * older, *[older] * (context - 1)]
        tables = (nn.Embedding(vocabulary_size + 1, share, padding_idx=vocabulary_size) for share in widths)
        self.embeddings = nn.ModuleList(tables)

    def initial_state(self, batch: int) -> PredictorState:
        """Return the state before the start symbol: the labels before the last, and nothing.

        They are [context - 1, batch, 1], int64, the newest first, and [0, batch, 1]: searches move rows of both as they
        move those of an LSTM.
        """
        device = next(self.parameters()).device
        labels = torch.full((self.context - 1, batch, 1), self.blank, dtype=torch.int64, device=device)
        return labels, labels[:0]

    def forward(self, labels: Tensor, state: PredictorState) -> tuple[Tensor, PredictorState]:
        """Advance every row by one label.

        Args:
            labels: [batch], the label just emitted, or the blank at the start.
            state: see ``initial_state``.

        Returns:
            The output [batch, width] and the new state.
        """
        before, nothing = state
        history = torch.cat([labels[None, :, None], before])
        return self._output(list(history.squeeze(2))), (history[:-1], nothing)

    def read(self, labels: Tensor) -> Tensor:
        """Return the output at the start and after each label, [batch, labels + 1, width], for training.

        Args:
            labels: [batch, labels]; padding comes last and may be any labels.
        """
        places = labels.size(1) + 1
        padded = pad(labels, (self.context, 0), value=self.blank)
        return self._output([padded[:, self.context - 1 - age :][:, :places] for age in range(self.context)])

    def _output(self, history: list[Tensor]) -> Tensor:
        """Return the output, [..., width], after labels [...], the newest first."""
        output = torch.cat([table(labels) for table, labels in zip(self.embeddings, history, strict=True)], dim=-1)
        return layer_norm(output, (self.width,)) if self._is_normalized else output


AnyPredictor = Predictor | StatelessPredictor
