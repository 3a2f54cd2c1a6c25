"""CTC alignment of known tokens: the likeliest path through the frames that gives them."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.graphs.arena import Layout
from models.search.result import SearchResult


@torch.no_grad()
def ctc_alignment(
    log_probabilities: Tensor, lengths: Tensor, blank: int, tokens: Tensor, counts: Tensor
) -> SearchResult:
    """Align a batch (Viterbi over the tokens and the blanks between them).

    Args:
        log_probabilities: [batch, frames, labels + 1], float32.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        blank: index of the blank.
        tokens: the tokens, int64 [batch, columns].
        counts: number of tokens of each row, [batch]. A path needs a frame for each, and one more between equal
            neighbours.

    Returns:
        The tokens, with the first frame and the end of each one's run, and the confidence at that frame.
    """
    frames = log_probabilities.size(1)
    alignment = CtcAlignment(log_probabilities, lengths, blank, tokens.size(1))
    alignment.restart(tokens, counts)
    for _ in range(frames):
        alignment.step()
    alignment.turn()
    for _ in range(frames):
        alignment.step_back()
    return alignment.result()


class CtcAlignment:
    """The Viterbi search, forward and back, in preallocated tensors."""

    @staticmethod
    def steps_layout(batch: int, frames: int, columns: int) -> Layout:
        """Return the layout of the steps, by far the largest tensor; the last frame is a spare one."""
        return Layout((frames + 1, batch, 2 * columns + 1), torch.uint8)

    def __init__(
        self, log_probabilities: Tensor, lengths: Tensor, blank: int, columns: int, steps: Tensor | None = None
    ) -> None:
        """Allocate the state.

        Args:
            log_probabilities: see ``ctc_alignment``; its values may change before each ``restart``.
            lengths: see ``ctc_alignment``; may change too.
            blank: index of the blank.
            columns: most tokens of a row.
            steps: a tensor of ``steps_layout``, with zeros if ``step_back`` is called before ``step``; None makes one.
        """
        batch, self._frames = log_probabilities.shape[:2]
        self._log_probabilities = log_probabilities
        self._lengths = lengths
        self._blank = blank
        self._next = lengths.new_zeros(1)  # the next frame
        self._tokens = lengths.new_zeros(batch, columns)
        self._counts = lengths.new_zeros(batch)
        # States: a blank, the first token, a blank, the second, and so on.
        self._labels = lengths.new_full((batch, 2 * columns + 1), blank)
        # A path may go from a token to the next without a blank between them, if they differ.
        self._may_skip = torch.zeros_like(self._labels, dtype=torch.bool)
        # Two unreachable states before the first one.
        self._padded = torch.full((batch, 2 + self._labels.size(1)), -torch.inf, device=lengths.device)
        self._reached = self._padded[:, 2:]
        self._is_first = torch.arange(2 * columns + 1, device=lengths.device) == 0
        # Steps past the end write to a spare last frame.
        layout = self.steps_layout(batch, self._frames, columns)
        self._steps = layout.zeros(lengths.device) if steps is None else steps
        # Steps back past the beginning write to a spare first frame.
        self._path = lengths.new_zeros(batch, 1 + self._frames)
        self._state = lengths.new_zeros(batch, 1)

    def goes_on(self) -> Tensor:
        """Return whether frames are left for ``step``, bool [1]."""
        return self._next < self._lengths.amax()

    def goes_back(self) -> Tensor:
        """Return whether frames are left for ``step_back``, bool [1]."""
        return self._next >= 0

    def restart(self, tokens: Tensor, counts: Tensor) -> None:
        """Begin a new alignment; see ``ctc_alignment``."""
        self._tokens.copy_(tokens)
        self._counts.copy_(counts)
        self._labels[:, 1::2] = tokens
        is_token = self._labels != self._blank
        self._may_skip.copy_(is_token & (self._labels != pad(self._labels, (2, 0), value=self._blank)[:, :-2]))
        # Every path starts in the first blank.
        self._reached.fill_(-torch.inf)
        self._reached.masked_fill_(self._is_first, 0)
        self._next.zero_()

    def step(self) -> None:
        """Find the likeliest path to each state at the next frame."""
        at = self._next.clamp(max=self._frames - 1)
        scores = self._log_probabilities.index_select(1, at).squeeze(1).gather(1, self._labels)
        two = torch.where(self._may_skip, self._padded[:, :-2], -torch.inf)
        best, step = torch.stack([self._reached, self._padded[:, 1:-1], two]).max(dim=0)
        inside = (self._next < self._lengths)[:, None]
        self._reached.copy_(torch.where(inside, best + scores, self._reached))
        step = step.where(inside, 0).to(torch.uint8)
        self._steps.index_copy_(0, self._next.clamp(max=self._frames), step[None])
        self._next += 1

    def turn(self) -> None:
        """Begin to trace back, from the last frame."""
        # A path ends with the last token or with the blank after it.
        last = torch.stack([2 * self._counts, (2 * self._counts - 1).clamp(min=0)], dim=1)
        self._state.copy_(last.gather(1, self._reached.gather(1, last).argmax(dim=1, keepdim=True)))
        self._next.copy_(self._next.clamp(max=self._frames) - 1)

    def step_back(self) -> None:
        """Trace back by one frame."""
        self._path.index_copy_(1, (self._next + 1).clamp(min=0), self._state)
        step = self._steps.index_select(0, self._next.clamp(min=0)).squeeze(0)
        self._state -= step.gather(1, self._state)
        self._next -= 1

    def result(self) -> SearchResult:
        """Return the alignment; its tensors are valid until the next ``restart``."""
        return _spans(self._path[:, 1:], self._lengths, self._log_probabilities, self._tokens, self._counts)


def _spans(path: Tensor, lengths: Tensor, log_probabilities: Tensor, tokens: Tensor, counts: Tensor) -> SearchResult:
    """Return the tokens with their first frame and end on a path of states, [batch, frames]."""
    columns, frames = tokens.size(1), path.size(1)
    frame = torch.arange(frames, device=path.device).expand_as(path)
    token = torch.where((path % 2 == 1) & (frame < lengths[:, None]), path // 2, columns)
    first = tokens.new_full((tokens.size(0), columns + 1), frames)
    first = first.scatter_reduce(1, token, frame, "amin")[:, :columns]
    end = tokens.new_zeros(tokens.size(0), columns + 1)
    end = end.scatter_reduce(1, token, frame + 1, "amax")[:, :columns]
    is_token = torch.arange(columns, device=tokens.device) < counts[:, None]
    rows = torch.arange(tokens.size(0), device=tokens.device)[:, None]
    at = first.clamp(max=max(frames - 1, 0))
    confidence = log_probabilities[rows, at, tokens].exp() if frames else torch.zeros_like(tokens, dtype=torch.float32)
    return SearchResult(
        tokens=tokens,
        frames=first.where(is_token, 0),
        ends=end.where(is_token, 0),
        confidence=confidence.where(is_token, 0),
        counts=counts,
    )
