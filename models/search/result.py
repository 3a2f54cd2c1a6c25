"""What every search returns: a batch of token sequences on the device, and the same as plain rows on the host."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens of one utterance; the lists have one entry a token."""

    tokens: list[int]
    frames: list[int]
    ends: list[int]
    durations: list[int] | None
    confidence: list[float]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The tokens of a batch of utterances.

    Every tensor but ``counts`` is [batch, columns]; of row ``b`` the first ``counts[b]`` columns are its tokens.

    Attributes:
        tokens: ids of the labels, int64.
        frames: the encoder frame at which each token begins, int64.
        ends: the first encoder frame after each token, int64. CTC: after the last frame of the token's run; RNN-T:
            the next frame; TDT: the frame plus the duration.
        durations: the frames each token advanced the search by, int64; TDT only, else None.
        confidence: softmax probability of the chosen label among labels and blank, durations apart, float32.
        counts: tokens of each row, int64 [batch].
    """

    tokens: Tensor
    frames: Tensor
    ends: Tensor
    durations: Tensor | None
    confidence: Tensor
    counts: Tensor

    def rows(self) -> list[Row]:
        """Return the utterances as plain lists, with a single copy from the device."""
        integers = [self.tokens, self.frames, self.ends, *([] if self.durations is None else [self.durations])]
        bits_of_confidence = self.confidence.view(torch.int32)
        fields = torch.stack([*(field.to(torch.int32) for field in integers), bits_of_confidence], dim=1)
        packed = torch.cat([self.counts[:, None].to(torch.int32), fields.flatten(1)], dim=1).cpu()
        host = packed[:, 1:].reshape(fields.shape).numpy()
        return [
            Row(
                tokens=row[0, :count].tolist(),
                frames=row[1, :count].tolist(),
                ends=row[2, :count].tolist(),
                durations=None if self.durations is None else row[3, :count].tolist(),
                confidence=row[-1, :count].view("float32").tolist(),
            )
            for count, row in zip(packed[:, 0].tolist(), host, strict=True)
        ]
