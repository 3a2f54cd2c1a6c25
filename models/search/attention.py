"""Greedy search with an attention decoder: the best next token of every row, until each has ended its text.

A step works on tensors of one shape, asks the device for nothing and decides nothing on the host, so that it can be
captured in a CUDA graph. A row gives what it gives alone: its length is bounded by its own audio, whatever the company.
NeMo bounds it by the longest utterance of a batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder, Memory
from models.search.drivers.eager import repeat
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


@torch.no_grad()
def attention_greedy(
    decoder: AttentionDecoder, encoded: Tensor, lengths: Tensor, prompts: Tensor, end: int, bound: LengthBound
) -> SearchResult:
    """Search a batch; every row gives what it gives alone.

    Args:
        decoder: the decoder.
        encoded: [batch, frames, encoder width], in the dtype of the decoder; choices are made in float32.
        lengths: valid frames of each row, [batch].
        prompts: [batch, prompt], int64, tokens that come before the text.
        end: the token that ends a text; it is no part of the result.
        bound: how long sequences may get.

    Returns:
        Tokens after the prompt, whose frames are not known. The lowest index wins a tie.
    """
    state = AttentionState(decoder, decoder.memory(encoded, lengths), prompts, end, bound)
    return state.result(columns=repeat(AttentionState.step, state))


class AttentionState:
    """What each row has read and written; ``step`` advances it in place.

    Attributes:
        active: whether each row goes on, bool [batch].
        capacity: the most tokens that a row can write.
    """

    def __init__(
        self, decoder: AttentionDecoder, memory: Memory, prompts: Tensor, end: int, bound: LengthBound
    ) -> None:
        """Allocate the state and let the decoder read the prompts but for their last token."""
        batch, prompt = prompts.shape
        self.capacity = max(0, bound.longest - prompt)
        self.active = bound.limits > prompt
        self._decoder = decoder
        self._memory = memory
        self._end = end
        self._limits = bound.limits
        self._cache = decoder.cache(batch, max(bound.longest, prompt))
        self._token = prompts[:, -1:].clone()  # what the next step reads
        self._position = torch.full((1,), prompt - 1, device=prompts.device)  # where that stands
        self._column = torch.zeros_like(self._position)  # where it writes
        self._counts = torch.zeros_like(bound.limits)
        self._tokens = prompts.new_zeros(batch, self.capacity)
        self._confidence = self._tokens.new_zeros(self._tokens.shape, dtype=torch.float32)
        if prompt > 1:
            decoder(prompts[:, :-1], torch.arange(prompt - 1, device=prompts.device), memory, self._cache)

    def step(self) -> None:
        """Write the next token of every row that goes on, and finish those that end, are full or repeat themselves."""
        logits = self._decoder(self._token, self._position, self._memory, self._cache)
        scores = logits[:, -1, : self._decoder.vocabulary_size].float()
        best, token = scores.max(dim=-1, keepdim=True)
        written = self.active & (token[:, 0] != self._end)
        self._tokens.index_copy_(1, self._column, token)
        self._confidence.index_copy_(1, self._column, (best - scores.logsumexp(dim=-1, keepdim=True)).exp())
        self._counts += written
        self._token.copy_(token)
        self._position += 1
        # The sequence now reaches to the position that is read next.
        self.active &= written & (self._position + 1 < self._limits) & ~self._repeats()
        self._column += 1

    def _repeats(self) -> Tensor:
        """Tell of each row whether its last tokens are one short phrase over and over, bool [batch]."""
        looked_at = _LONGEST_PHRASE + _REPEATED_TOKENS
        if self.capacity < looked_at:
            return torch.zeros_like(self.active)
        columns = self._column + torch.arange(1 - looked_at, 1, device=self._column.device)
        recent = self._tokens[:, columns.clamp(min=0)]
        earlier = recent.unfold(1, _REPEATED_TOKENS, 1)[:, :-1]  # by 16, 15, ... 1 tokens
        same = (earlier == recent[:, None, _LONGEST_PHRASE:]).all(dim=2).any(dim=1)
        return same & (columns[0] >= 0)

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
