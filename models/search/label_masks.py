"""Which labels a row may write: a number that every search adds to its scores of labels, 0 or minus infinity.

Here other terms that depend on the row can join the search, since all forms of it choose among the sums:

- CTC, greedy or with a beam: they are added to the logits before the search (``LabelMasks.added``).
- Transducers: ``flat`` and ``look_ahead`` take ``masks``, and so does ``GraphedLookAhead.search``, which copies them to
  memory of its own, because graphs need fixed addresses. The joint's kernel (fused_joint.py) reads them in its tiles.

Confidence is the share among the labels that a row may write. The blank is never masked, so each row has a choice.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Rows of the smallest table that graphs are made for; larger ones are rounded up to a power of two.
_LEAST_KINDS = 8


class LabelMasks(NamedTuple):
    """What a batch adds to its scores of labels.

    Attributes:
        table: float32 [kinds, labels + 1], 0 or minus infinity. Its first row is 0 for all labels, and so is the column
            of the blank, the last.
        kinds: the row of ``table`` of each row of the batch, int64 [batch].
    """

    table: Tensor
    kinds: Tensor

    @property
    def of_rows(self) -> Tensor:
        """What each row of the batch adds, [batch, labels + 1]."""
        return self.table.index_select(0, self.kinds)

    @classmethod
    def of_all(cls, rows: int, kinds: int, labels: int, device: torch.device) -> "LabelMasks":
        """Return masks of rows that may write all of ``labels`` labels, blank included; ``replace`` changes them."""
        table, kind = torch.zeros(kinds, labels, device=device), torch.zeros(rows, dtype=torch.int64, device=device)
        return cls(table, kind)

    def replace(self, masks: "LabelMasks") -> None:
        """Take other masks in place; rows beyond theirs may write all labels."""
        self.table[: len(masks.table)] = masks.table
        self.kinds.zero_()
        self.kinds[: len(masks.kinds)] = masks.kinds

    def added(self, logits: Tensor) -> Tensor:
        """Return logits [batch, frames, labels + 1] with what each row adds, float32."""
        return logits.float() + self.of_rows[:, None]


def table_size(kinds: int) -> int:
    """Return the rows of the smallest table that graphs are made for and that holds ``kinds``."""
    return max(_LEAST_KINDS, 1 << (kinds - 1).bit_length())
