"""CTC beam search with a language model: the likeliest texts, each summed over all of its paths through the frames.

A text's score is its CTC log probability (Graves and Jaitly, 2014; Hannun et al., 2014), plus the weighted log
probability of the language model, plus a bonus for each token. A step advances all texts of all rows by one frame.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.language_model import LanguageModel
from models.search.ctc_alignment import ctc_alignment
from models.search.result import SearchResult

BEAM = 16
# Labels of a frame that may extend a text. The others have next to no probability.
_CANDIDATES = 12
_HASH_FACTOR = 6364136223846793005


@torch.no_grad()
def ctc_beam(
    logits: Tensor, lengths: Tensor, blank: int, language_model: LanguageModel, beam: int = BEAM
) -> SearchResult:
    """Search a batch; a row's result does not depend on the rest of its batch.

    Args:
        logits: [batch, frames, labels + 1], any floating dtype.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        blank: index of the blank.
        language_model: a language model of the same labels.
        beam: texts kept for each row.

    Returns:
        Tokens with the first frame and the end of their run on the likeliest path of the text. The confidence is that
        of the first frame.
    """
    search = CtcBeam(logits, blank, language_model, beam)
    search.restart(logits, lengths)
    for _ in range(logits.size(1)):
        search.step()
    found, counts = search.found()
    # The only wait for the device: an alignment's memory grows with tokens and frames, and few frames have a token.
    most = max(counts.tolist(), default=0)
    return ctc_alignment(search.log_probabilities, search.lengths, blank, found[:, :most], counts)


class CtcBeam:
    """The state of a CTC beam search: texts, and links to trace them back, in preallocated tensors.

    Attributes:
        log_probabilities: [batch, frames, labels + 1], float32.
        lengths: valid frames of each row, [batch].
    """

    def __init__(self, largest: Tensor, blank: int, language_model: LanguageModel, beam: int = BEAM) -> None:
        """Allocate the state.

        Args:
            largest: [batch, frames, labels + 1], for at most its rows and frames.
            blank: index of the blank.
            language_model: a language model of the same labels.
            beam: texts kept for each row.
        """
        batch, self._frames, width = largest.shape
        self._blank = blank
        self._model = language_model
        self.log_probabilities = largest.new_zeros(largest.shape, dtype=torch.float32)
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=largest.device)
        self._next = self.lengths.new_zeros(1)  # the next frame
        self._best = self.log_probabilities.new_zeros(batch, self._frames, min(_CANDIDATES, width - 1))
        self._candidates = self.lengths.new_zeros(self._best.shape)
        self._texts = _Texts(self._best.new_zeros(3, batch, beam), self.lengths.new_zeros(5, batch, beam))
        self._texts.state[3] = self._places = torch.arange(beam, device=largest.device)
        self._texts.state[4] = blank
        # Parent and token of each text at each frame. A spare frame takes steps beyond the last one.
        self._links = self.lengths.new_zeros(self._frames + 1, 2, batch, beam)

    def goes_on(self) -> Tensor:
        """Return whether frames are left, bool [1]."""
        return self._next < self.lengths.amax()

    def restart(self, logits: Tensor, lengths: Tensor) -> None:
        """Begin a new batch, see ``ctc_beam``; rows beyond it are empty."""
        rows, frames = logits.shape[:2]
        log_probabilities = logits.float().log_softmax(dim=-1)
        self.log_probabilities[:rows, :frames] = log_probabilities
        log_probabilities.select(2, self._blank).fill_(-torch.inf)
        best = log_probabilities.topk(self._best.size(2), dim=-1)
        self._best[:rows, :frames], self._candidates[:rows, :frames] = best.values, best.indices
        self.lengths.zero_()
        self.lengths[:rows] = lengths
        self._next.zero_()
        # At first, a row has the empty text only.
        scores, state = self._texts.scores, self._texts.state
        scores.fill_(-torch.inf)
        scores[0].masked_fill_(self._places == 0, 0)
        scores[2].zero_()
        state[0].fill_(self._model.start)
        state[1].fill_(self._blank)
        state[2].zero_()

    def step(self) -> None:
        """Advance all texts by a frame."""
        at = self._next.clamp(max=self._frames - 1)
        given = (self.log_probabilities, self._best, self._candidates)
        log_probabilities, best, candidates = (frames.index_select(1, at).squeeze(1) for frames in given)
        frame = _Frame(log_probabilities, best, candidates, self._blank)
        scores, state = _advanced(self._texts, frame, self._model)
        inside = (self._next < self.lengths)[:, None]
        torch.where(inside, scores, self._texts.scores, out=self._texts.scores)
        state = torch.where(inside, state, self._texts.state)
        self._texts.state[:3] = state[:3]
        self._links.index_copy_(0, self._next.clamp(max=self._frames), state[None, 3:])
        self._next += 1

    def found(self) -> tuple[Tensor, Tensor]:
        """Return the tokens of the likeliest texts, [batch, frames], and their counts."""
        ended = self._texts.rank + self._model.weight * self._model.score_end(self._texts.state[0])
        best = ended.argmax(dim=1, keepdim=True)
        # Beyond a row's end is what an earlier batch left there.
        inside = (torch.arange(self._frames, device=best.device)[:, None] < self.lengths)[:, :, None]
        parents, tokens = self._links[:-1].unbind(1)
        parents, tokens = torch.where(inside, parents, self._places), torch.where(inside, tokens, self._blank)
        return _traced(best, parents, tokens, self._blank)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame: all log probabilities, the best labels (``candidates``) and their ``scores``, [batch, ...]."""

    log_probabilities: Tensor
    scores: Tensor
    candidates: Tensor
    blank: int


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts so far.

    Attributes:
        scores: [3, batch, beam], float32: log probability of the paths that end with a blank, of those that end with
            the last token, and the sum of language model and bonus.
        state: [5, batch, beam], int64: context of the language model; last token, or the blank before the first; a
            digest of the text; and the parent and token of a step that leaves the text unchanged: its own index, and
            the blank.
    """

    scores: Tensor
    state: Tensor

    @property
    def rank(self) -> Tensor:
        """The scores that texts are compared by."""
        return torch.logaddexp(self.scores[0], self.scores[1]) + self.scores[2]


def _advanced(texts: _Texts, frame: _Frame, model: LanguageModel) -> tuple[Tensor, Tensor]:
    """Return scores and state of the best texts after a frame; the last two of a state are parent and token."""
    (blanked, spoken, extra), (context, last, digest, place, _) = texts.scores, texts.state
    total = torch.logaddexp(blanked, spoken)
    beam, count = total.size(1), frame.candidates.size(1)

    labels = frame.candidates[:, None]
    # A label repeats itself as a new token only after a blank.
    ways = torch.where(labels == last[..., None], blanked[..., None], total[..., None])
    longer = ways + frame.scores[:, None]
    score, next_context = model.score(context[..., None], labels)
    next_digest = digest[..., None] * _HASH_FACTOR + labels + 1

    # An extended text may be in the beam already. Texts without probability do not count.
    is_there = (next_digest[:, None] == digest[..., None, None]) & (total > -torch.inf)[..., None, None]
    more = torch.where(is_there, longer[:, None], -torch.inf).amax(dim=(2, 3))
    longer = torch.where(is_there.any(dim=1), -torch.inf, longer)

    # The empty text has no path that ends with a token: -inf, whatever the probability of the blank in its place.
    same = torch.logaddexp(spoken + frame.log_probabilities.gather(1, last), more)
    stay = torch.stack([total + frame.log_probabilities[:, frame.blank, None], same, extra])
    next_extra = extra[..., None] + model.weight * score + model.bonus
    new = torch.stack([torch.full_like(longer, -torch.inf), longer, next_extra]).flatten(2)
    rank = torch.cat([torch.logaddexp(stay[0], stay[1]) + extra, new[1] + new[2]], dim=1)
    chosen = rank.topk(beam, dim=1).indices
    scores = torch.cat([stay, new], dim=2).gather(2, chosen.expand(3, -1, -1))

    added = [next_context, labels, next_digest, place[..., None], labels]
    grown = torch.stack([one.expand(-1, beam, count) for one in added]).flatten(2)
    return scores, torch.cat([texts.state, grown], dim=2).gather(2, chosen.expand(len(added), -1, -1))


def _traced(best: Tensor, parents: Tensor, tokens: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of the best texts, [batch, frames], and their counts.

    Args:
        best: index in the beam of each row's best text after the last frame, [batch, 1].
        parents: index of each text's parent before a frame, [frames, batch, beam].
        tokens: the token that the frame added, or the blank, in the same shape.
        blank: index of the blank.
    """
    frames, batch = parents.shape[:2]
    # Links are composed to twice their length again and again, until each leads from the end to its own frame.
    back, length = parents, 1
    while length < frames:
        back = torch.cat([back[:-length].gather(2, back[length:]), back[-length:]])
        length *= 2
    place = torch.cat([back.gather(2, best.expand(frames, batch, 1))[1:], best[None]])[:frames]
    path = tokens.gather(2, place).squeeze(2).T
    is_token = path != blank
    column = (is_token.cumsum(dim=1) - 1).where(is_token, frames)
    found = path.new_zeros(batch, frames + 1).scatter_(1, column, path)[:, :-1]
    return found, is_token.sum(dim=1)
