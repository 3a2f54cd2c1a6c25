"""CTC beam search with a language model: the likeliest texts, each summed over all of its paths through the frames.

A text's score is its CTC log probability (Graves and Jaitly, 2014; Hannun et al., 2014), plus the weighted log
probability of the language model, plus a bonus for each token. A step advances all texts of all rows by a frame.

What phrases add to a token (phrases.py) is added to the log probability of its label at the frame where it begins. At a
frame whose best label is the blank they add nothing; what a phrase gives back, it gives back anywhere.

Many frames are blanks without a doubt. They have no step: all that they do is to end the token before them. So each row
steps through frames of its own.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.graphs.arena import Layout
from models.search.ctc_alignment import ctc_alignment
from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases
from models.search.preference import CANDIDATES
from models.search.result import SearchResult

BEAM = 16
# By this a gain of a phrase is multiplied before it is added (docs/measured/2026-11.md).
PHRASE_SCALE = 1.25
# A frame whose blank is at least as likely has no step. With a step for every frame and 12 candidates, 1,551 words were
# wrong instead of 1,552 (docs/performance.md at 4f03a9e).
_CERTAIN_BLANK = 0.98
_HASH_FACTOR = 6364136223846793005
_NO_DIGEST = -(2**62)


@torch.no_grad()
def ctc_beam(
    logits: Tensor,
    lengths: Tensor,
    blank: int,
    language_model: LanguageModel,
    beam: int = BEAM,
    phrases: BatchPhrases | None = None,
) -> SearchResult:
    """Search a batch; a row's result does not depend on the rest of its batch.

    Args:
        logits: [batch, frames, labels + 1], any floating dtype.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        blank: index of the blank.
        language_model: a language model of the same labels.
        beam: texts kept for each row.
        phrases: the phrases of the rows.

    Returns:
        Tokens with the first frame and the end of their run on the likeliest path of the text. The confidence is that
        of the first frame.
    """
    search = CtcBeam(logits, blank, language_model, beam)
    search.restart(logits, lengths, phrases)
    # On a GPU the host waits here, and for the counts: an alignment with room for a token in every frame would take far
    # more memory.
    for _ in range(int(search.steps.amax()) if logits.size(0) else 0):
        search.step()
    found, counts = search.found()
    most = max(counts.tolist(), default=0)
    return ctc_alignment(search.log_probabilities, search.lengths, blank, found[:, :most], counts)


class CtcBeam:
    """The state of a CTC beam search: texts, and links to trace them back, in preallocated tensors.

    Attributes:
        log_probabilities: [batch, frames, labels + 1], float32.
        lengths: valid frames of each row, [batch].
        steps: how many of these may have a token, [batch].
    """

    @staticmethod
    def layouts(largest: Tensor, beam: int) -> list[Layout]:
        """Return the layouts of the state's large tensors: log probabilities and links."""
        batch, frames, _ = largest.shape
        return [Layout(tuple(largest.shape), torch.float32), Layout((frames + 1, 2, batch, beam), torch.int64)]

    def __init__(
        self,
        largest: Tensor,
        blank: int,
        language_model: LanguageModel,
        beam: int = BEAM,
        large: Sequence[Tensor] | None = None,
    ) -> None:
        """Allocate the state.

        Args:
            largest: has the shape of the largest batch to come, [batch, frames, labels + 1]; its values are not read.
            blank: index of the blank.
            language_model: a language model of the same labels.
            beam: texts kept for each row.
            large: tensors of ``layouts``, whatever they hold; None makes them.
        """
        batch, self._frames, width = largest.shape
        self._blank = blank
        self._model = language_model
        # Links are parent and token of each text at each step. A spare one takes steps beyond the last.
        if large is None:
            large = [layout.zeros(largest.device) for layout in self.layouts(largest, beam)]
        self.log_probabilities, self._links = large
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=largest.device)
        self.steps = torch.zeros_like(self.lengths)
        self._next = self.lengths.new_zeros(1)  # the next step
        # Of each step: its frame, whether frames without a step are just before it, and its best labels with their log
        # probabilities. The last of these is the blank, which leaves a text unchanged.
        self._frame = self.lengths.new_zeros(batch, self._frames)
        self._follows_blank = torch.zeros_like(self._frame, dtype=torch.bool)
        count = min(CANDIDATES, width - 1)
        self._labels = self.lengths.new_full((batch, self._frames, count + 1), blank)
        self._best = self.log_probabilities.new_zeros(self._labels.shape)
        # Of each text: log probability of the paths that end with a blank, of those that end with the last token, and
        # the sum of language model and bonus.
        self._scores = self._best.new_zeros(3, batch, beam)
        # Context of the language model; last token, or the blank before the first; a digest of the text; a digest of
        # the text without its last token; and state of the phrases.
        self._state = self.lengths.new_zeros(5, batch, beam)
        self._phrases: BatchPhrases | None = None
        self._places = torch.arange(beam, device=largest.device)

    def goes_on(self) -> Tensor:
        """Return whether steps are left, bool [1]."""
        return self._next < self.steps.amax()

    def restart(self, logits: Tensor, lengths: Tensor, phrases: BatchPhrases | None = None) -> None:
        """Begin a new batch, see ``ctc_beam``; rows beyond it are empty. With phrases, none are beyond it."""
        rows, frames = logits.shape[:2]
        log_probabilities = logits.float().log_softmax(dim=-1)
        self.log_probabilities[:rows, :frames] = log_probabilities
        self.lengths.zero_()
        self.lengths[:rows] = lengths
        self.steps.zero_()
        self.steps[:rows] = self._plan(log_probabilities, lengths)
        self._next.zero_()
        # At first, a row has the empty text only. The other places have digests that no text has.
        scores, state = self._scores, self._state
        scores.fill_(-torch.inf)
        scores[0].masked_fill_(self._places == 0, 0)
        scores[2].zero_()
        state[0].fill_(self._model.start)
        state[1].fill_(self._blank)
        state[2].copy_(-self._places)
        state[3].fill_(_NO_DIGEST)
        self._phrases = phrases
        if phrases is not None:
            state[4].copy_(phrases.start[:, None])

    def _plan(self, log_probabilities: Tensor, lengths: Tensor) -> Tensor:
        """Prepare the steps of the first rows, and return how many each has; overwrites the log probabilities."""
        rows, frames = log_probabilities.shape[:2]
        blank = log_probabilities[..., self._blank].clone()
        log_probabilities[..., self._blank] = -torch.inf
        best = log_probabilities.topk(self._best.size(2) - 1, dim=-1)

        frame = torch.arange(frames, device=blank.device)
        # Not a number, which an overflow gives, has a step too, so that it is found (models/device/precision.py).
        has_step = ~(blank >= math.log(_CERTAIN_BLANK)) & (frame < lengths[:, None])
        # A spare column takes the frames without a step.
        step = torch.where(has_step, has_step.cumsum(dim=1) - 1, frames)
        at = step.new_zeros(rows, frames + 1).scatter_(1, step, frame.expand_as(step))[:, :-1]
        self._frame[:rows, :frames] = at
        self._follows_blank[:rows, :frames] = at > pad(at, (1, 0), value=-1)[:, :-1] + 1
        every = at[..., None].expand_as(best.indices)
        self._labels[:rows, :frames, :-1] = best.indices.gather(1, every)
        self._best[:rows, :frames, :-1] = best.values.gather(1, every)
        self._best[:rows, :frames, -1] = blank.gather(1, at)
        return has_step.sum(dim=1)

    def step(self) -> None:
        """Advance all texts by a step."""
        at = self._next.clamp(max=self._frames - 1)
        frame = self._frame.index_select(1, at)[..., None].expand(-1, -1, self.log_probabilities.size(2))
        scores, state, links = self._advanced(
            self.log_probabilities.gather(1, frame).squeeze(1),
            self._labels.index_select(1, at).squeeze(1),
            self._best.index_select(1, at).squeeze(1),
            self._follows_blank.index_select(1, at),
        )
        inside = (self._next < self.steps)[:, None]
        torch.where(inside, scores, self._scores, out=self._scores)
        torch.where(inside, state, self._state, out=self._state)
        # What is written beyond a row's end is not read.
        self._links.index_copy_(0, self._next.clamp(max=self._frames), links[None])
        self._next += 1

    def _advanced(
        self, log_probabilities: Tensor, candidates: Tensor, best: Tensor, follows_blank: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores and state of the best texts after a step, and their links, [2, batch, beam].

        A text is extended by each label or, with the blank, stays as it is: [batch, beam, candidates + 1]. Links are
        the index of a text's parent, and the token that the step added to it, or the blank.

        Args:
            log_probabilities: of the step's frame, [batch, labels + 1].
            candidates: the best labels and, last, the blank, [batch, candidates + 1].
            best: their log probabilities.
            follows_blank: whether frames without a step are just before it, bool [batch, 1].
        """
        model, phrases = self._model, self._phrases
        (blanked, spoken, extra), (context, last, digest, shorter, begun) = self._scores, self._state
        total = torch.logaddexp(blanked, spoken)
        # A frame without a step ends the token before it.
        blanked = torch.where(follows_blank, total, blanked)
        spoken = spoken.masked_fill(follows_blank, -torch.inf)

        labels = candidates[:, None]
        differs = labels != last[..., None]
        # A label repeats itself as a new token only after a blank.
        ways = torch.where(differs, total[..., None], blanked[..., None]) + best[:, None]
        score, after = model.score(context[..., None], labels[..., :-1])

        scores = ways.new_full((3, *ways.shape), -torch.inf)
        scores[0, ..., -1] = ways[..., -1]
        scores[1, ..., :-1] = ways[..., :-1]
        begins = begun[..., None].expand_as(after)
        if phrases is not None:
            gain, begins = phrases.score(begins, labels[..., :-1])
            # The best labels come first, and the blank last.
            is_blank = best[:, None, :1] <= best[:, None, -1:]
            scores[1, ..., :-1] += PHRASE_SCALE * torch.where(is_blank, gain.clamp(max=0), gain)
        bonus = model.bonus * model.has_text[labels[..., :-1]]
        torch.add(extra[..., None] + bonus, score, alpha=model.weight, out=scores[2, ..., :-1])
        scores[2, ..., -1] = extra
        # Where an extended text is in the beam already, its paths are added to those of the text that is there.
        extended = scores[1].flatten(1)
        there = _extensions_there(digest, shorter, differs)
        more = extended.gather(1, there)
        extended.scatter_(1, there, -torch.inf)
        # The empty text has no path that ends with a token: -inf, whatever the probability of the blank in its place.
        torch.logaddexp(spoken + log_probabilities.gather(1, last), more, out=scores[1, ..., -1])

        chosen = _rank(scores).flatten(1).topk(total.size(1), dim=1).indices
        width = labels.size(2)
        parent, column = chosen // width, chosen % width
        token = candidates.gather(1, column)
        kept = self._state.gather(2, parent.expand(5, -1, -1))
        after = pad(after, (0, 1)).flatten(1).gather(1, chosen)
        begun = pad(begins, (0, 1)).flatten(1).gather(1, chosen)
        grown = torch.stack([after, token, kept[2] * _HASH_FACTOR + (token + 1), kept[2], begun])
        state = torch.where(column == width - 1, kept, grown)
        scores = scores.flatten(2).gather(2, chosen.expand(3, -1, -1))
        return scores, state, torch.stack([parent, token])

    def found(self) -> tuple[Tensor, Tensor]:
        """Return the tokens of the likeliest texts, [batch, frames], and their counts."""
        ended = _rank(self._scores) + self._model.weight * self._model.score_end(self._state[0])
        if self._phrases is not None:
            ended += PHRASE_SCALE * self._phrases.score_end(self._state[4])
        best = ended.argmax(dim=1, keepdim=True)
        # Beyond a row's end are links of other texts.
        inside = (torch.arange(self._frames, device=best.device)[:, None] < self.steps)[:, :, None]
        parents, tokens = self._links[:-1].unbind(1)
        parents, tokens = torch.where(inside, parents, self._places), torch.where(inside, tokens, self._blank)
        return _traced(best, parents, tokens, self._blank)


def _rank(scores: Tensor) -> Tensor:
    """Return what texts are compared by, of their scores [3, ...]."""
    return torch.logaddexp(scores[0], scores[1]) + scores[2]


def _extensions_there(digest: Tensor, shorter: Tensor, differs: Tensor) -> Tensor:
    """Return which extension gives each text of the beam, [batch, beam]: an index into [beam * (candidates + 1)].

    Where none does, it is that of the first text and the blank, whose score is still minus infinity.

    Args:
        digest: digest of each text, [batch, beam].
        shorter: digest of each text without its last token, [batch, beam].
        differs: whether each candidate differs from the last token of each text, [batch, beam, candidates + 1].
    """
    beam, width = differs.shape[1:]
    none = -beam * width
    parents = torch.arange(0, -none, width, device=digest.device)
    parent = parents.masked_fill(shorter[..., None] != digest[:, None], none).amax(dim=2)
    column = torch.arange(width, device=digest.device).masked_fill(differs, none).amax(dim=2)
    there = parent + column
    return there.masked_fill(there < 0, width - 1)


def _traced(best: Tensor, parents: Tensor, tokens: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of the best texts, [batch, steps], and their counts.

    Args:
        best: index in the beam of each row's best text after the last step, [batch, 1].
        parents: index of each text's parent before a step, [steps, batch, beam].
        tokens: the token that the step added, or the blank, in the same shape.
        blank: index of the blank.
    """
    steps, batch = parents.shape[:2]
    # Links are composed to twice their length again and again, until each leads from the end to its own step.
    back, length = parents, 1
    while length < steps:
        back = torch.cat([back[:-length].gather(2, back[length:]), back[-length:]])
        length *= 2
    place = torch.cat([back.gather(2, best.expand(steps, batch, 1))[1:], best[None]])[:steps]
    path = tokens.gather(2, place).squeeze(2).T
    is_token = path != blank
    column = (is_token.cumsum(dim=1) - 1).where(is_token, steps)
    found = path.new_zeros(batch, steps + 1).scatter_(1, column, path)[:, :-1]
    return found, is_token.sum(dim=1)
