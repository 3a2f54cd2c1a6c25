"""CTC beam search with a language model: the likeliest texts, each over all of its ways through the frames.

A text's score is the probability that CTC gives it (Graves and Jaitly, 2014; Hannun et al., 2014), times that of the
language model to the power of its weight, and a bonus for every token. A step advances all texts of all rows by one
frame, so that a batch is searched at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.language_model import LanguageModel
from models.search.ctc_alignment import ctc_alignment
from models.search.result import SearchResult

BEAM = 16
# Labels of a frame that a text may go on with. The others have little more than nothing.
_CANDIDATES = 12
_HASH_FACTOR = 6364136223846793005


@torch.no_grad()
def ctc_beam(
    logits: Tensor, lengths: Tensor, blank: int, language_model: LanguageModel, beam: int = BEAM
) -> SearchResult:
    """Search a batch; every row gives what it gives alone.

    Args:
        logits: [batch, frames, labels + 1], any floating dtype.
        lengths: valid frames of each row, [batch]; what lies beyond changes nothing.
        blank: index of the blank.
        language_model: of the same labels.
        beam: texts that are kept of each row.

    Returns:
        Tokens with the first frame and the end of their run in the likeliest way through the frames that says them.
        The confidence is that of the first frame.
    """
    log_probabilities = logits.float().log_softmax(dim=-1)
    batch, frames, width = log_probabilities.shape
    labels = log_probabilities.index_fill(2, torch.tensor([blank], device=logits.device), -torch.inf)
    scores, candidates = labels.topk(min(_CANDIDATES, width - 1), dim=-1)
    texts = _Texts.first(batch, beam, blank, language_model.start, logits.device)
    parents, tokens = [], []
    for frame in range(frames):
        step = _Frame(log_probabilities[:, frame], scores[:, frame], candidates[:, frame], blank)
        texts, parent, token = _advanced(texts, step, frame < lengths, language_model)
        parents.append(parent)
        tokens.append(token)
    ended = texts.rank + language_model.weight * language_model.score_end(texts.state[0])
    best = ended.argmax(dim=1, keepdim=True)
    found, counts = _traced(best, parents, tokens, blank)
    # The one wait for the device: an alignment takes memory by tokens and frames, and few frames have a token.
    most = max(counts.tolist(), default=0)
    return ctc_alignment(log_probabilities, lengths, blank, found[:, :most], counts)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is heard at a frame: log probabilities, and the best labels with theirs, [batch, ...]."""

    log_probabilities: Tensor
    scores: Tensor
    candidates: Tensor
    blank: int


@dataclass(frozen=True, slots=True)
class _Texts:
    """What may have been said so far.

    Attributes:
        scores: [3, batch, beam], float32: the log probability of the ways that end with a blank, of those that end with
            the last token, and what the language model and the bonus add.
        state: [3, batch, beam], int64: the context of the language model, the last token or the blank before the first,
            and what tells a text from the others of its row.
    """

    scores: Tensor
    state: Tensor

    @classmethod
    def first(cls, batch: int, beam: int, blank: int, start: int, device: torch.device) -> "_Texts":
        """Return the empty text, and nothing beside it."""
        scores = torch.full((3, batch, beam), -torch.inf, device=device)
        scores[0, :, 0] = 0
        scores[2] = 0
        state = torch.zeros(3, batch, beam, dtype=torch.int64, device=device)
        state[0] = start
        state[1] = blank
        return cls(scores, state)

    @property
    def rank(self) -> Tensor:
        """What texts are compared by."""
        return torch.logaddexp(self.scores[0], self.scores[1]) + self.scores[2]


def _advanced(texts: _Texts, frame: _Frame, is_inside: Tensor, model: LanguageModel) -> tuple[_Texts, Tensor, Tensor]:
    """Return the best texts after a frame, and of each its parent and the token it adds, or the blank for none."""
    (blanked, spoken, extra), (context, last, digest) = texts.scores, texts.state
    heard = torch.logaddexp(blanked, spoken)
    beam, count = heard.size(1), frame.candidates.size(1)

    labels = frame.candidates[:, None]
    # A label that follows itself is another one only after a blank.
    ways = torch.where(labels == last[..., None], blanked[..., None], heard[..., None])
    longer = ways + frame.scores[:, None]
    score, next_context = model.score(context[..., None], labels)
    next_digest = digest[..., None] * _HASH_FACTOR + labels + 1

    # A longer text may be one that is there already. One that is impossible is nobody's.
    is_there = (next_digest[:, None] == digest[..., None, None]) & (heard > -torch.inf)[..., None, None]
    more = torch.where(is_there, longer[:, None], -torch.inf).amax(dim=(2, 3))
    longer = torch.where(is_there.any(dim=1), -torch.inf, longer)

    # Before the first token nothing ends with one: -inf, whatever the blank in its place has.
    same = torch.logaddexp(spoken + frame.log_probabilities.gather(1, last), more)
    stay = torch.stack([heard + frame.log_probabilities[:, frame.blank, None], same, extra])
    next_extra = extra[..., None] + model.weight * score + model.bonus
    new = torch.stack([torch.full_like(longer, -torch.inf), longer, next_extra]).flatten(2)
    rank = torch.cat([torch.logaddexp(stay[0], stay[1]) + extra, new[1] + new[2]], dim=1)
    chosen = rank.topk(beam, dim=1).indices
    scores = torch.cat([stay, new], dim=2).gather(2, chosen.expand(3, -1, -1))

    # Beside the state the parent, and the token that is added.
    here = torch.arange(beam, device=heard.device).expand_as(heard)
    old = torch.cat([texts.state, torch.stack([here, torch.full_like(here, frame.blank)])])
    added = [next_context, labels, next_digest, here[..., None], labels]
    grown = torch.stack([one.expand(-1, beam, count) for one in added]).flatten(2)
    after = torch.cat([old, grown], dim=2).gather(2, chosen.expand(len(added), -1, -1))

    inside = is_inside[:, None]
    after = torch.where(inside, after, old)
    return _Texts(torch.where(inside, scores, texts.scores), after[:3]), after[3], after[4]


def _traced(best: Tensor, parents: list[Tensor], tokens: list[Tensor], blank: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of the best texts, [batch, frames], and how many each has."""
    said = []
    for parent, token in zip(reversed(parents), reversed(tokens), strict=True):
        said.append(token.gather(1, best))
        best = parent.gather(1, best)
    if not said:
        return best[:, :0], torch.zeros_like(best[:, 0])
    path = torch.cat(said[::-1], dim=1)
    is_token = path != blank
    column = (is_token.cumsum(dim=1) - 1).where(is_token, path.size(1))
    found = path.new_zeros(path.size(0), path.size(1) + 1).scatter_(1, column, path)[:, :-1]
    return found, is_token.sum(dim=1)
