"""Greedy CTC search: the best label of every frame, repeats merged, blanks dropped (Graves et al., 2006).

With phrases, the best label of a run of frames gives way to one that a phrase prefers. Blanks stay where they are.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.search.phrases import BatchPhrases
from models.search.preference import PHRASE_SCALE, prefer
from models.search.result import SearchResult

# The fields of a result (``SearchResult.fields``).
FIELDS = ("tokens", "frames", "ends")


@torch.no_grad()
def ctc_greedy(logits: Tensor, lengths: Tensor, blank: int, phrases: BatchPhrases | None = None) -> SearchResult:
    """Search a batch in one pass, without a loop over rows or, unless there are phrases, frames.

    Args:
        logits: [batch, frames, labels + 1], any floating dtype.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        blank: index of the blank.
        phrases: the phrases of the rows.

    Returns:
        Tokens with the first frame and the end of their run. The confidence is that of the first frame. The lowest
        index wins a tie.
    """
    frames = logits.size(1)
    scores = logits.float()
    best, labels = scores.max(dim=-1)
    frame = torch.arange(frames, device=logits.device).expand_as(labels)
    labels = labels.where(frame < lengths[:, None], blank)
    if phrases is not None and labels.numel():
        labels = _preferred(scores, labels, blank, phrases)
        best = scores.gather(2, labels[..., None]).squeeze(2)
    probability = (best - scores.logsumexp(dim=-1)).exp()

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
        confidence=compact(probability, first),
        counts=first.sum(dim=1),
    )


def _preferred(scores: Tensor, labels: Tensor, blank: int, phrases: BatchPhrases) -> Tensor:
    """Return the label of each frame, [batch, frames], where phrases have chosen among the best labels of each run.

    A run is frames in a row with one best label. It gets the label with the highest sum of log probabilities over its
    frames and of what phrases add. A run beside another never gets that one's label: they would merge. But where its
    own best label was chosen there, both are one token.
    """
    before = pad(labels, (1, 0), value=blank)[:, :-1]
    first = (labels != blank) & (labels != before)
    runs = first.cumsum(dim=1) - 1
    most = int(first.sum(dim=1).amax())  # on a GPU the host waits here
    if not most:
        return labels
    inside = labels != blank
    own = runs.where(inside, most)  # a spare run takes the blanks
    scored = scores.log_softmax(dim=-1)[..., :blank]
    sums = scored.new_zeros(len(labels), most + 1, blank).scatter_add_(1, own[..., None].expand_as(scored), scored)

    def of_first(values: Tensor) -> Tensor:
        """Return the values at the first frames of the runs, [batch, most]."""
        columns = runs.where(first, most)
        return values.new_zeros(len(values), most + 1).scatter_(1, columns, values)[:, :most]

    raw, joins = of_first(labels), of_first((before != blank).long()) > 0
    there = torch.arange(most, device=labels.device) < first.sum(dim=1, keepdim=True)
    state, last = phrases.start, torch.full_like(phrases.start, blank)
    chosen = []
    for run in range(most):
        goes_on = joins[:, run] & (raw[:, run] == last)
        taken = joins[:, run, None] & (torch.arange(blank, device=last.device) == last[:, None])
        scored = sums[:, run].masked_fill(taken, -torch.inf)
        label, (after,) = prefer(scored, raw[:, run], [(phrases, state, PHRASE_SCALE)])
        last = last.where(goes_on, label)
        state = state.where(goes_on | ~there[:, run], after)
        chosen.append(last)
    return torch.stack(chosen, dim=1).gather(1, runs.clamp(min=0)).where(inside, labels)
