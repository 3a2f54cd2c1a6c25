"""Search with an attention decoder: token after token of every row, until each has ended its text.

``GreedyWriting`` takes the best next token; ``BeamWriting`` (attention_beam.py) keeps a few texts of every row. A step
works on tensors of one shape, asks the device for nothing and decides nothing on the host, so that it can be captured
in a CUDA graph. A row gives what it gives alone: its length is bounded by its own audio, whatever the company. NeMo
bounds it by the longest utterance of a batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder, Memory
from models.search.result import SearchResult

# A decoder that has lost its way writes one phrase until it is stopped. A row is finished when a phrase of at most
# so many tokens goes on for so many tokens more: eight times or over. No text that is read or told does that, and who
# says one word 129 times in one breath is cut short.
_LONGEST_PHRASE = 16
_REPEATED_TOKENS = 128


@dataclass(frozen=True, slots=True)
class LengthBound:
    """How long the sequences of a batch may get, prompts included.

    Attributes:
        limits: tokens of each row, int64 [batch]; a row without room beyond its prompt stays empty.
        longest: no limit is larger; known to the host.
    """

    limits: Tensor
    longest: int


def length_bound(config: AttentionDecoderConfig, frames: Tensor, factor: int, columns: int) -> LengthBound:
    """Return how long sequences may get: as long as NeMo allows for each utterance alone.

    That is ``config.length_margin`` over the columns of the encoder's output. NeMo computes a feature more than an
    utterance has, and so a column more than it has encoder frames where those use up all of its features.

    Args:
        config: of the decoder.
        frames: features of each utterance, int64 [batch]; one without any gets nothing.
        factor: features for each encoder frame.
        columns: of the batch; the encoder frames of its longest utterance, or more.
    """
    margin = config.positions if config.length_margin is None else config.length_margin
    limits = (frames // factor + 1 + margin).clamp(max=config.positions).where(frames > 0, 0)
    return LengthBound(limits, longest=min(config.positions, columns + 1 + margin))


class GreedyWriting:
    """What each row has read and written; ``step`` advances it in place.

    Attributes:
        active: whether each row goes on, bool [rows].
        capacity: the most tokens that a row can write.
    """

    def __init__(
        self, decoder: AttentionDecoder, memory: Memory, prompts: Tensor, longest: int, end: int, *, texts: int = 1
    ) -> None:
        """Allocate the state; ``restart`` begins.

        Args:
            decoder: the decoder.
            memory: the encoder's frames for each row; their values may change before a restart.
            prompts: as those to come: [utterances, prompt], int64.
            longest: no sequence gets longer, prompt included.
            end: the token that ends a text; it is no part of the result.
            texts: rows of each utterance.
        """
        rows, self._prompt = prompts.size(0) * texts, prompts.size(1)
        self.capacity = max(0, longest - self._prompt)
        self.active = prompts.new_zeros(rows, dtype=torch.bool)
        self._decoder = decoder
        self._memory = memory
        self._end = end
        self._last_position = max(longest, self._prompt) - 1
        self._cache = decoder.cache(rows, self._last_position + 1)
        self._limits = prompts.new_zeros(rows)
        self._token = prompts.new_zeros(rows, 1)  # what the next step reads
        self._position = prompts.new_zeros(1)  # where that stands
        self._column = prompts.new_zeros(1)  # where it writes
        self._counts = prompts.new_zeros(rows)
        # A spare column takes what is written when every row is done.
        self._tokens = prompts.new_zeros(rows, self.capacity + 1)
        self._confidence = prompts.new_zeros(rows, self.capacity + 1, dtype=torch.float32)

    def restart(self, prompts: Tensor, limits: Tensor) -> None:
        """Begin anew, in place, and let the decoder read the prompts but for their last token.

        Args:
            prompts: [rows, prompt], int64.
            limits: tokens that each row's sequence may have, int64 [rows].
        """
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
        """Write the next token of every row that goes on, and finish those that end, are full or repeat themselves."""
        logits = self._decoder(self._token, self._position, self._memory, self._cache)
        self._choose(logits[:, -1, : self._decoder.vocabulary_size].float())
        # Steps after the last row's end, as a graph may have, stay inside what was allocated.
        self._position.add_(1).clamp_(max=self._last_position)
        self._column.add_(1).clamp_(max=self.capacity)

    def result(self, columns: int) -> SearchResult:
        """Return what was written, when no row has more than ``columns`` tokens."""
        return SearchResult(
            tokens=self._tokens[:, :columns],
            frames=None,
            ends=None,
            durations=None,
            confidence=self._confidence[:, :columns],
            counts=self._counts,
        )

    def _choose(self, scores: Tensor) -> None:
        """Write a token of every row by the scores of all, [rows, tokens]; the lowest index wins a tie."""
        best, token = scores.max(dim=-1)
        self._write(token, (best - scores.logsumexp(dim=-1)).exp())

    def _write(self, token: Tensor, confidence: Tensor) -> None:
        """Write what was chosen, [rows]; rows that are done write nothing that counts."""
        written = self.active & (token != self._end)
        self._tokens.index_copy_(1, self._column, token[:, None])
        self._confidence.index_copy_(1, self._column, confidence[:, None])
        self._counts += written
        self._token.copy_(token[:, None])
        # With the token that is read next, the sequence reaches two further than the one that was read.
        self.active &= written & (self._position + 2 < self._limits) & ~self._repeats()

    def _repeats(self) -> Tensor:
        """Tell of each row whether its last tokens are one short phrase over and over, bool [rows]."""
        looked_at = _LONGEST_PHRASE + _REPEATED_TOKENS
        if self.capacity < looked_at:
            return torch.zeros_like(self.active)
        columns = self._column + torch.arange(1 - looked_at, 1, device=self._column.device)
        recent = self._tokens[:, columns.clamp(min=0)]
        earlier = recent.unfold(1, _REPEATED_TOKENS, 1)[:, :-1]  # by 16, 15, ... 1 tokens
        same = (earlier == recent[:, None, _LONGEST_PHRASE:]).all(dim=2).any(dim=1)
        repeats: Tensor = same & (columns[0] >= 0)
        return repeats
