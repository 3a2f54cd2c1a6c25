"""Search with an attention decoder: token by token for all rows, until each has ended its text.

Where the end of the text is the best next token, phrases add nothing.

``GreedyWriting`` takes the best next token; ``BeamWriting`` (attention_beam.py) keeps several texts for each utterance.
A step has fixed shapes and neither waits for the device nor branches on data, so a CUDA graph can capture it. A row's
result does not depend on the batch: its length is bounded by its own audio. NeMo bounds it by the longest utterance of
the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder, Cache, Memory
from models.search.phrases import BatchPhrases
from models.search.preference import PHRASE_SCALE, prefer
from models.search.result import SearchResult

# A decoder that fails may repeat a phrase until it is stopped. A row is finished when it has repeated a phrase of at
# most _LONGEST_PHRASE tokens for _REPEATED_TOKENS tokens, eight times or more. Real speech does not do that, unless
# one word is said 129 times in one breath.
_LONGEST_PHRASE = 16
_REPEATED_TOKENS = 128


@dataclass(frozen=True, slots=True)
class LengthBound:
    """The longest sequences of a batch, prompts included.

    Attributes:
        limits: tokens of each row, int64 [batch]; a row without room beyond its prompt stays empty.
        longest: at least the largest limit; known to the host.
    """

    limits: Tensor
    longest: int


def length_bound(config: AttentionDecoderConfig, features: Tensor, factor: int, columns: int) -> LengthBound:
    """Return the bound of each sequence, that of NeMo for each utterance alone.

    That is the number of encoder frames plus ``config.length_margin``. NeMo computes one feature too many, so in NeMo
    an utterance has ``features // factor + 1`` encoder frames.

    Args:
        config: the decoder's configuration.
        features: features of each utterance, int64 [batch]; an utterance without features gets no tokens.
        factor: features for each encoder frame.
        columns: encoder frames of the batch's longest utterance, or more.
    """
    margin = config.positions if config.length_margin is None else config.length_margin
    limits = (features // factor + 1 + margin).clamp(max=config.positions).where(features > 0, 0)
    return LengthBound(limits, longest=min(config.positions, columns + 1 + margin))


class GreedyWriting:
    """The state of a greedy search, advanced in place by ``step``.

    Attributes:
        active: whether each row goes on, bool [rows].
        capacity: the most tokens that a row can write.
    """

    def __init__(
        self,
        decoder: AttentionDecoder,
        memory: Memory,
        prompts: Tensor,
        longest: int,
        end: int,
        *,
        texts: int = 1,
        caches: Sequence[Cache] | None = None,
    ) -> None:
        """Allocate the state; ``restart`` begins a search.

        Args:
            decoder: the decoder.
            memory: the encoder's frames for each row; their values may change before a restart.
            prompts: prompts of the shape of those to come, [utterances, prompt], int64.
            longest: most tokens of a sequence, prompt included.
            end: the token that ends a text; not part of the result.
            texts: rows of each utterance.
            caches: the cache, with finite values and room for ``longest`` tokens of each row; None makes it.
        """
        rows, self._prompt = prompts.size(0) * texts, prompts.size(1)
        self.capacity = max(0, longest - self._prompt)
        self.active = prompts.new_zeros(rows, dtype=torch.bool)
        self._decoder = decoder
        self._memory = memory
        self._end = end
        self._last_position = max(longest, self._prompt) - 1
        self._cache = caches[0] if caches else decoder.cache(rows, self._last_position + 1)
        self._limits = prompts.new_zeros(rows)
        self._token = prompts.new_zeros(rows, 1)  # what the next step reads
        self._position = prompts.new_zeros(1)  # the position of that token in the sequence
        self._column = prompts.new_zeros(1)  # the column that it writes to
        self._counts = prompts.new_zeros(rows)
        self._phrases: BatchPhrases | None = None
        self._begun = prompts.new_zeros(rows)  # the state of each row's phrases
        # The spare column takes what steps write after all rows are done.
        self._tokens = prompts.new_zeros(rows, self.capacity + 1)
        self._confidence = prompts.new_zeros(rows, self.capacity + 1, dtype=torch.float32)

    def restart(self, prompts: Tensor, limits: Tensor, phrases: BatchPhrases | None = None) -> None:
        """Begin a new search in place, and let the decoder read the prompts except for their last token.

        Args:
            prompts: [rows, prompt], int64.
            limits: most tokens of each row's sequence, int64 [rows].
            phrases: the phrases of the rows.
        """
        self._phrases = phrases
        if phrases is not None:
            self._begun.copy_(phrases.start)
        self.active.copy_(limits > self._prompt)
        self._limits.copy_(limits)
        self._token.copy_(prompts[:, -1:])
        self._position.fill_(self._prompt - 1)
        self._column.zero_()
        self._counts.zero_()
        if self._prompt > 1:
            places = torch.arange(self._prompt - 1, device=prompts.device)
            self._decoder(prompts[:, :-1], places, self._memory, self._cache)

    def step(self) -> None:
        """Write the next token of each active row, and finish rows that end, are full or repeat themselves."""
        logits = self._decoder(self._token, self._position, self._memory, self._cache)
        self._choose(logits[:, -1, : self._decoder.vocabulary_size].float())
        # A graph may step after all rows are done; this keeps such steps inside the allocated memory.
        self._position.add_(1).clamp_(max=self._last_position)
        self._column.add_(1).clamp_(max=self.capacity)

    def result(self, columns: int) -> SearchResult:
        """Return the tokens; no row may have more than ``columns``."""
        return SearchResult(self._tokens[:, :columns], self._confidence[:, :columns], self._counts)

    def _choose(self, scores: Tensor) -> None:
        """Choose a token for each row by the scores [rows, tokens]; the lowest index wins a tie."""
        token = scores.argmax(dim=-1)
        if self._phrases is not None:
            token, (begun,) = prefer(scores, token, [(self._phrases, self._begun, PHRASE_SCALE)])
            self._begun.copy_(begun)
        chosen = scores.gather(1, token[:, None]).squeeze(1)
        self._write(token, (chosen - scores.logsumexp(dim=-1)).exp())

    def _write(self, token: Tensor, confidence: Tensor) -> None:
        """Write the chosen tokens [rows]; what finished rows write does not count."""
        written = self.active & (token != self._end)
        self._tokens.index_copy_(1, self._column, token[:, None])
        self._confidence.index_copy_(1, self._column, confidence[:, None])
        self._counts += written
        self._token.copy_(token[:, None])
        # This token is at ``_position + 1``, so the sequence now has ``_position + 2`` tokens.
        self.active &= written & (self._position + 2 < self._limits) & ~self._repeats()

    def _repeats(self) -> Tensor:
        """Return whether the last tokens of each row repeat one short phrase, bool [rows]."""
        looked_at = _LONGEST_PHRASE + _REPEATED_TOKENS
        if self.capacity < looked_at:
            return torch.zeros_like(self.active)
        columns = self._column + torch.arange(1 - looked_at, 1, device=self._column.device)
        recent = self._tokens[:, columns.clamp(min=0)]
        earlier = recent.unfold(1, _REPEATED_TOKENS, 1)[:, :-1]  # by 16, 15, ... 1 tokens
        same = (earlier == recent[:, None, _LONGEST_PHRASE:]).all(dim=2).any(dim=1)
        repeats: Tensor = same & (columns[0] >= 0)
        return repeats
