"""Greedy CTC search: the best label of every frame, repeats merged, blanks dropped (Graves et al., 2006)."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.search.result import SearchResult

# The fields of a result (``SearchResult.fields``).
FIELDS = ("tokens", "frames", "ends")


@torch.no_grad()
def ctc_greedy(logits: Tensor, lengths: Tensor, blank: int) -> SearchResult:
    """Search a batch in one pass, without a loop over rows or frames.

    Args:
        logits: [batch, frames, labels + 1], any floating dtype.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        blank: index of the blank.

    Returns:
        Tokens with the first frame and the end of their run. The confidence is that of the first frame. The lowest
        index wins a tie.
    """
    frames = logits.size(1)
    scores = logits.float()
    best, labels = scores.max(dim=-1)
    probability = (best - scores.logsumexp(dim=-1)).exp()

    frame = torch.arange(frames, device=logits.device).expand_as(labels)
    labels = labels.where(frame < lengths[:, None], blank)
    before, after = pad(labels, (1, 0), value=blank)[:, :-1], pad(labels, (0, 1), value=blank)[:, 1:]
    first = (labels != blank) & (labels != before)
    last = (labels != blank) & (labels != after)
    token = first.cumsum(dim=1) - 1

    def compact(values: Tensor, chosen: Tensor) -> Tensor:
        """Move each row's chosen values to the columns of their tokens; the others go to a spare last column."""
        columns = token.where(chosen, frames)
        return values.new_zeros(values.size(0), frames + 1).scatter_(1, columns, values)[:, :frames]

    return SearchResult(
        tokens=compact(labels, first),
        frames=compact(frame, first),
        ends=compact(frame + 1, last),
        durations=None,
        confidence=compact(probability, first),
        counts=first.sum(dim=1),
    )
