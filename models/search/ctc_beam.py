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
    ended = texts.rank + language_model.weight * language_model.score_end(texts.context)
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
    """What may have been said so far; each tensor is [batch, beam].

    Attributes:
        blanked: log probability of the ways that end with a blank.
        spoken: of those that end with the last token.
        extra: what the language model and the bonus add.
        context: state of the language model.
        last: the last token; the blank before the first.
        digest: tells a text from the others of its row.
    """

    blanked: Tensor
    spoken: Tensor
    extra: Tensor
    context: Tensor
    last: Tensor
    digest: Tensor

    @classmethod
    def first(cls, batch: int, beam: int, blank: int, start: int, device: torch.device) -> "_Texts":
        """Return the empty text, and nothing beside it."""
        zeros = torch.zeros(batch, beam, device=device)
        numbers = torch.zeros(batch, beam, dtype=torch.int64, device=device)
        blanked = torch.full_like(zeros, -torch.inf)
        blanked[:, 0] = 0
        return cls(blanked, torch.full_like(zeros, -torch.inf), zeros, numbers + start, numbers + blank, numbers)

    @property
    def heard(self) -> Tensor:
        """Log probability of each text."""
        return torch.logaddexp(self.blanked, self.spoken)

    @property
    def rank(self) -> Tensor:
        """What texts are compared by."""
        return self.heard + self.extra


def _advanced(texts: _Texts, frame: _Frame, is_inside: Tensor, model: LanguageModel) -> tuple[_Texts, Tensor, Tensor]:
    """Return the best texts after a frame, and of each its parent and the token it adds, or the blank for none."""
    heard = texts.heard
    same = frame.log_probabilities.gather(1, texts.last)
    blanked = heard + frame.log_probabilities[:, frame.blank, None]
    # Before the first token nothing ends with one: -inf, whatever the blank in its place has.
    spoken = texts.spoken + same

    shape = (*heard.shape, frame.candidates.size(1))
    labels = frame.candidates[:, None].expand(shape)
    # A label that follows itself is another one only after a blank.
    ways = torch.where(labels == texts.last[..., None], texts.blanked[..., None], heard[..., None])
    longer = ways + frame.scores[:, None]
    score, context = model.score(texts.context[..., None].expand(shape), labels)
    extra = texts.extra[..., None] + model.weight * score + model.bonus
    digest = texts.digest[..., None] * _HASH_FACTOR + labels + 1

    # A longer text may be one that is there already. One that is impossible is nobody's.
    is_there = (digest[:, None] == texts.digest[..., None, None]) & (heard > -torch.inf)[..., None, None]
    more = torch.where(is_there, longer[:, None], -torch.inf).amax(dim=(2, 3))
    spoken = torch.logaddexp(spoken, more)
    longer = torch.where(is_there.any(dim=1), -torch.inf, longer)

    stays = _Texts(blanked, spoken, texts.extra, texts.context, texts.last, texts.digest)
    rank = torch.cat([stays.rank, (longer + extra).flatten(1)], dim=1)
    chosen = rank.topk(heard.size(1), dim=1).indices
    unspoken = torch.full_like(longer, -torch.inf)
    merged = [
        torch.cat([stay, new.flatten(1)], dim=1).gather(1, chosen)
        for stay, new in (
            (blanked, unspoken),
            (spoken, longer),
            (texts.extra, extra),
            (texts.context, context),
            (texts.last, labels),
            (texts.digest, digest),
        )
    ]
    here = torch.arange(heard.size(1), device=heard.device).expand_as(heard)
    parent = torch.cat([here, here[..., None].expand(shape).flatten(1)], dim=1).gather(1, chosen)
    token = torch.cat([torch.full_like(here, frame.blank), labels.flatten(1)], dim=1).gather(1, chosen)
    inside = is_inside[:, None]
    before = (texts.blanked, texts.spoken, texts.extra, texts.context, texts.last, texts.digest)
    after = _Texts(*(torch.where(inside, new, old) for new, old in zip(merged, before, strict=True)))
    return after, torch.where(inside, parent, here), token.where(inside, frame.blank)


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
