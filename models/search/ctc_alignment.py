"""Where tokens that are known were said: the likeliest way of CTC through the frames that says them."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.search.result import SearchResult


@torch.no_grad()
def ctc_alignment(
    log_probabilities: Tensor, lengths: Tensor, blank: int, tokens: Tensor, counts: Tensor
) -> SearchResult:
    """Align a batch (Viterbi over the tokens and the blanks between them).

    Args:
        log_probabilities: [batch, frames, labels + 1], float32.
        lengths: valid frames of each row, [batch]; what lies beyond changes nothing.
        blank: index of the blank.
        tokens: what is said, int64 [batch, columns].
        counts: how many of them, [batch]; there must be a way, so no more than the row has frames.

    Returns:
        The tokens with the first frame and the end of the run of each; the confidence is that of the first frame.
    """
    batch, columns = tokens.shape
    frames = log_probabilities.size(1)
    # States: a blank, the first token, a blank, the second, and so on.
    said = torch.full((batch, 2 * columns + 1), blank, dtype=torch.int64, device=tokens.device)
    said[:, 1::2] = tokens
    is_token = said != blank
    # From one token to the next without a blank between them, if they differ.
    may_skip = is_token & (said != pad(said, (2, 0), value=blank)[:, :-2])
    reached = torch.full(said.shape, -torch.inf, device=tokens.device)
    steps = []
    for frame in range(frames):
        heard = log_probabilities[:, frame].gather(1, said)
        if frame == 0:
            best, step = torch.where(torch.arange(said.size(1), device=said.device) < 2, 0.0, -torch.inf), None
            best = best.expand_as(reached)
        else:
            one = pad(reached, (1, 0), value=-torch.inf)[:, :-1]
            two = torch.where(may_skip, pad(reached, (2, 0), value=-torch.inf)[:, :-2], -torch.inf)
            best, step = torch.stack([reached, one, two]).max(dim=0)
        inside = (frame < lengths)[:, None]
        reached = torch.where(inside, best + heard, reached)
        if step is not None:
            steps.append(step.where(inside, 0).to(torch.uint8))
    # A way ends with the last token or with the blank after it.
    last = torch.stack([2 * counts, (2 * counts - 1).clamp(min=0)], dim=1)
    state = last.gather(1, reached.gather(1, last).argmax(dim=1, keepdim=True))
    states = [state]
    for step in reversed(steps):
        states.append(states[-1] - step.gather(1, states[-1]))
    path = torch.cat(states[::-1], dim=1)[:, :frames]
    return _spans(path, lengths, log_probabilities, tokens, counts)


def _spans(path: Tensor, lengths: Tensor, log_probabilities: Tensor, tokens: Tensor, counts: Tensor) -> SearchResult:
    """Return where each token begins and ends on a path of states, [batch, frames]."""
    columns, frames = tokens.size(1), path.size(1)
    frame = torch.arange(frames, device=path.device).expand_as(path)
    token = torch.where((path % 2 == 1) & (frame < lengths[:, None]), path // 2, columns)
    first = tokens.new_full((tokens.size(0), columns + 1), frames)
    first = first.scatter_reduce(1, token, frame, "amin")[:, :columns]
    end = tokens.new_zeros(tokens.size(0), columns + 1)
    end = end.scatter_reduce(1, token, frame + 1, "amax")[:, :columns]
    is_said = torch.arange(columns, device=tokens.device) < counts[:, None]
    rows = torch.arange(tokens.size(0), device=tokens.device)[:, None]
    at = first.clamp(max=max(frames - 1, 0))
    confidence = log_probabilities[rows, at, tokens].exp() if frames else torch.zeros_like(tokens, dtype=torch.float32)
    return SearchResult(
        tokens=tokens,
        frames=first.where(is_said, 0),
        ends=end.where(is_said, 0),
        durations=None,
        confidence=confidence.where(is_said, 0),
        counts=counts,
    )
