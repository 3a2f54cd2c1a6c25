"""Beam search with an attention decoder: the likeliest texts so far of each utterance.

A text that has ended stays in the beam with its score; an utterance goes on until all of its texts have ended. A score
is the sum of log-probabilities, divided by a length penalty (Wu et al., 2016, arXiv 1609.08144, section 7), whose
exponent is NeMo's ``len_pen``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.heads.attention_decoder import AttentionDecoder, Cache, Memory
from models.search.attention import GreedyWriting
from models.search.phrases import BatchPhrases
from models.search.preference import CANDIDATES, PHRASE_SCALE
from models.search.result import SearchResult

_NEVER = float("-inf")


class BeamWriting(GreedyWriting):
    """The state of a beam search: ``texts`` rows for each utterance, side by side."""

    CACHES = 2

    def __init__(
        self,
        decoder: AttentionDecoder,
        memory: Memory,
        prompts: Tensor,
        longest: int,
        end: int,
        *,
        texts: int,
        length_penalty: float,
        caches: Sequence[Cache] | None = None,
    ) -> None:
        """Allocate the state, as ``GreedyWriting`` does.

        ``texts`` is the beam width, a ``length_penalty`` of 0 compares sums, and ``caches`` are two.
        """
        super().__init__(decoder, memory, prompts, longest, end, texts=texts, caches=caches)
        self._texts = texts
        self._length_penalty = length_penalty
        # Candidates for each text: enough for phrases, and one more than the beam, because a text that ends has the
        # penalty of a shorter one.
        self._choices = min(max(texts + 1, CANDIDATES), decoder.vocabulary_size)
        self._scores = self._confidence.new_zeros(prompts.size(0) * texts)
        # A step reads one cache and writes the other, and they change places; a graph has an even number of steps.
        self._spare = caches[1] if caches else decoder.cache(len(self._scores), self._last_position + 1)
        self._first_rows = texts * torch.arange(prompts.size(0), device=prompts.device)[:, None]
        self._is_later = torch.arange(texts, device=prompts.device) > 0
        self._is_worse = torch.arange(self._choices, device=prompts.device) > 0

    def restart(self, prompts: Tensor, limits: Tensor, phrases: BatchPhrases | None = None) -> None:
        """Begin a new search; all have a row for each utterance."""
        several = prompts.repeat_interleave(self._texts, 0), limits.repeat_interleave(self._texts, 0)
        super().restart(*several, None if phrases is None else phrases.repeated(self._texts))
        # All texts of an utterance begin equal, so only the first may be continued in the first step.
        self._scores.view(-1, self._texts).copy_(torch.where(self._is_later, _NEVER, 0.0))

    def result(self, columns: int) -> SearchResult:
        """Return the best text of each utterance."""
        texts = super().result(columns)
        ranks = self._ranked(self._scores, self._counts).view(-1, self._texts)
        best = self._first_rows[:, 0] + ranks.argmax(dim=1)
        return SearchResult(texts.tokens[best], texts.confidence[best], texts.counts[best])

    def _choose(self, scores: Tensor) -> None:
        """Keep the best of all texts extended by one token, and of those that have ended."""
        added, token = scores.log_softmax(dim=-1).topk(self._choices)  # [rows, choices]
        confidence = added.exp()
        begun = self._begun[:, None].expand_as(token)
        if self._phrases is not None:
            gain, begun = self._phrases.score(begun, token)
            at_end = self._phrases.score_end(self._begun)[:, None]
            gain = torch.where(token == self._end, at_end, gain)
            # Nothing overtakes the end where that is the best next token.
            gain = torch.where(token[:, :1] == self._end, gain.minimum(at_end), gain)
            added = added + PHRASE_SCALE * gain
        ended = ~self.active[:, None]
        token = token.masked_fill(ended, self._end)
        added = added.masked_fill(ended & self._is_worse, _NEVER).masked_fill(ended & ~self._is_worse, 0.0)
        sums = self._scores[:, None] + added
        lengths = self._counts[:, None] + (token != self._end)

        ranks = self._ranked(sums, lengths).view(-1, self._texts * self._choices)
        chosen = ranks.topk(self._texts).indices  # [utterances, beam]
        before = (self._first_rows + chosen // self._choices).flatten()

        def of_chosen(values: Tensor) -> Tensor:
            return values.reshape(-1, self._texts * self._choices).gather(1, chosen).flatten()

        self._reorder(before)
        self._scores.copy_(of_chosen(sums))
        self._begun.copy_(of_chosen(begun))
        self._write(of_chosen(token), of_chosen(confidence))

    def _reorder(self, rows: Tensor) -> None:
        """Replace the history of each row by that of ``rows``."""
        torch.index_select(self._cache.keys, 1, rows, out=self._spare.keys)
        torch.index_select(self._cache.values, 1, rows, out=self._spare.values)
        self._cache, self._spare = self._spare, self._cache
        for kept in (self._tokens, self._confidence, self._counts, self.active):
            kept.copy_(kept[rows])

    def _ranked(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return sums divided by the length penalty of ``counts`` tokens, to which it adds those of prompt and end."""
        return sums / ((5 + self._prompt + counts + 1) / 6) ** self._length_penalty
