"""The result of every search: a batch of token sequences on the device, and the same as rows on the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.device.host_copy import HostCopy
from models.graphs.sizes import Sizes
from models.search.label_masks import LabelMasks
from models.search.phrases import BatchPhrases
from transcripts.transcript import Transcript, Word

_WHOLE_NUMBERS = ("tokens", "frames", "ends", "durations")


def confidence(logits: Tensor, token: Tensor) -> Tensor:
    """Return the probability of each choice of a transducer among labels and blank, float32 [rows].

    Args:
        logits: logits of labels and blank, float32 [rows, labels + 1].
        token: the choices, [rows].
    """
    return logits.softmax(dim=1).gather(1, token[:, None]).squeeze(1)


@dataclass(frozen=True, slots=True)
class UtteranceTokens:
    """The tokens of one utterance; the lists have one entry for each token."""

    tokens: list[int]
    frames: list[int] | None
    ends: list[int] | None
    durations: list[int] | None
    confidence: list[float]

    def transcript(self, text: str, words: list[Word]) -> Transcript:
        """Return the transcript of these tokens, with their text and words."""
        return Transcript(text, self.tokens, self.confidence, words, self.frames, self.durations)


@dataclass(frozen=True, slots=True)
class FlatRows:
    """The tokens of a batch on the host, utterance after utterance.

    Attributes:
        counts: number of tokens of each utterance, int64 [utterances].
        bounds: index of the first token of each utterance, and the end of the last, int64 [utterances + 1].
        tokens: int32 [tokens of all]; for this and the next four see ``SearchResult``.
        frames: int32 [tokens of all], or None.
        ends: int32 [tokens of all], or None.
        durations: int32 [tokens of all], or None.
        confidence: float32 [tokens of all].
    """

    counts: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int32]
    frames: npt.NDArray[np.int32] | None
    ends: npt.NDArray[np.int32] | None
    durations: npt.NDArray[np.int32] | None
    confidence: npt.NDArray[np.float32]

    def row(self, index: int) -> UtteranceTokens:
        """Return one utterance."""
        its = slice(self.bounds[index], self.bounds[index + 1])

        def listed(field: npt.NDArray[np.int32] | None) -> list[int] | None:
            return None if field is None else field[its].tolist()

        return UtteranceTokens(
            tokens=self.tokens[its].tolist(),
            frames=listed(self.frames),
            ends=listed(self.ends),
            durations=listed(self.durations),
            confidence=self.confidence[its].tolist(),
        )


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The tokens of a batch of utterances.

    Every tensor but ``counts`` is [batch, columns]; of row ``b`` the first ``counts[b]`` columns are its tokens.

    Attributes:
        tokens: ids of the labels, int64.
        confidence: softmax probability of the chosen label among labels and blank, durations apart, float32. An
            attention decoder has the end of the text in place of the blank.
        counts: tokens of each row, int64 [batch].
        frames: the encoder frame at which each token begins, int64; None for an attention decoder.
        ends: the first encoder frame after each token, int64; None with ``frames``. CTC: after the last frame of the
            token's run; RNN-T: the next frame; TDT: the frame plus the duration.
        durations: frames that each token advanced the search by, int64; TDT only, else None.
    """

    tokens: Tensor
    confidence: Tensor
    counts: Tensor
    frames: Tensor | None = None
    ends: Tensor | None = None
    durations: Tensor | None = None

    @classmethod
    def of_no_utterance(cls) -> "SearchResult":
        """Return the result of a batch without rows, on the host."""
        nothing = torch.zeros(0, 0, dtype=torch.int64)
        return cls(nothing, nothing.float(), nothing.flatten())

    def first(self, rows: int) -> "SearchResult":
        """Return the first rows, in the same memory."""
        names = (*self.fields, "confidence", "counts")
        return replace(self, **{name: getattr(self, name)[:rows] for name in names})

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the integer fields that are not None, in the order of ``packed``."""
        return tuple(name for name in _WHOLE_NUMBERS if getattr(self, name) is not None)

    def packed(self) -> Tensor:
        """Return the result as a new tensor [batch, 1 + (fields + 1) * columns], int32.

        A row has its count, then its fields, then the bits of its confidence.
        """
        whole = [getattr(self, name).to(torch.int32) for name in self.fields]
        columns = torch.stack([*whole, self.confidence.view(torch.int32)], dim=1)
        return torch.cat([self.counts[:, None].to(torch.int32), columns.flatten(1)], dim=1)

    def fetched(self) -> "FetchedResult":
        """Begin to copy the result to the host."""
        return FetchedResult(self.packed(), self.fields)

    def rows(self) -> list[UtteranceTokens]:
        """Return the utterances as rows."""
        return self.fetched().rows()


class FetchedResult:
    """A result that is being copied to the host; only a thread that reads it waits for the copy."""

    def __init__(self, packed: Tensor, fields: Sequence[str]) -> None:
        """Begin to copy; neither the host nor the device waits.

        Args:
            packed: see ``SearchResult.packed``.
            fields: see ``SearchResult.fields``.
        """
        self._fields = fields
        self._packed = HostCopy(packed)

    def wait(self) -> None:
        """Wait for the copy; raise RuntimeError if the device failed."""
        self._packed.wait()

    def flat_rows(self) -> FlatRows:
        """Wait, and return the utterances one after the other."""
        kinds = len(self._fields) + 1
        packed = self._packed.tensor().numpy()
        counts = packed[:, 0].astype(np.int64)
        columns = packed[:, 1:].reshape(len(packed), kinds, (packed.shape[1] - 1) // kinds)
        is_token = np.arange(columns.shape[2]) < counts[:, None]
        *whole, confidence = (np.ascontiguousarray(columns[:, kind][is_token]) for kind in range(kinds))
        values = dict(zip(self._fields, whole, strict=True))
        return FlatRows(
            counts=counts,
            bounds=np.concatenate(([0], np.cumsum(counts))),
            tokens=values["tokens"],
            frames=values.get("frames"),
            ends=values.get("ends"),
            durations=values.get("durations"),
            confidence=confidence.view(np.float32),
        )

    def rows(self) -> list[UtteranceTokens]:
        """Wait, and return the utterances as rows."""
        flat = self.flat_rows()
        return [flat.row(index) for index in range(len(flat.counts))]


# Finds the tokens of encoder frames [batch, frames, width], given the number of frames of each row, the labels that
# each may write, or None for all, and the phrases.
Search = Callable[[Tensor, Tensor, LabelMasks | None, BatchPhrases | None], FetchedResult]


class ChosenSearch(NamedTuple):
    """The search of a decoder on a device, and what it prepares for each size of batch."""

    search: Search
    sizes: Sizes[Any]
