"""The state of a transducer search over one batch: preallocated tensors that a step advances in place."""

import torch
from torch import Tensor

from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from models.search.result import SearchResult


class TransducerState:
    """The position of each row, the state of its predictor, and its tokens.

    At most ``max_symbols`` labels share a frame, so ``capacity`` columns hold any result. No method waits for the
    device or allocates a shape that depends on its data, so a CUDA graph can capture a step that calls them.

    Attributes:
        lengths: encoder frames of each row, int64 [batch].
        time: the frame that each row scores next, int64 [batch]; a row is done when it reaches its length.
        hidden: hidden state of the predictor, [layers, batch, width].
        cell: cell state of the predictor, [layers, batch, width].
        predicted: output of the predictor after the row's last label, projected for the joint, [batch, joint width].
        capacity: the most labels that a row can emit.
        max_symbols: most labels in one frame.
        symbols: labels that the row has emitted at ``last_frame``, int64 [batch].
        last_frame: frame of the last label, int64 [batch]; -1 before the first.
        counts: labels emitted, int64 [batch].
        tokens: the labels, int64 [batch, capacity + 1]; rows without a new label write to the spare column.
        frames: the frames at which they were scored, int64, in the same shape.
        durations: the frames that they advanced the row by, int64, in the same shape.
        confidence: their probabilities, float32, in the same shape.
    """

    def __init__(self, lengths: Tensor, frames: int, predictor: AnyPredictor, joint: Joint, max_symbols: int) -> None:
        """Allocate the state, and advance the predictor by the start symbol."""
        batch = lengths.size(0)
        start = torch.full_like(lengths, predictor.blank)
        output, (self.hidden, self.cell) = predictor(start, predictor.initial_state(batch))
        self.predicted: Tensor = joint.predictor_projection(output)
        self._start = tuple(tensor.clone() for tensor in (self.hidden, self.cell, self.predicted))
        self.lengths = lengths
        self.time = torch.zeros_like(lengths)
        self.capacity = frames * max_symbols

        self._is_tdt = bool(joint.durations)
        self.max_symbols = max_symbols
        self.symbols = torch.zeros_like(lengths)
        self.last_frame = torch.full_like(lengths, -1)
        self.counts = torch.zeros_like(lengths)
        self.tokens = lengths.new_zeros(batch, self.capacity + 1)
        self.frames = torch.zeros_like(self.tokens)
        self.durations = torch.zeros_like(self.tokens)
        self.confidence = self.tokens.new_zeros(self.tokens.shape, dtype=torch.float32)

    def restart(self) -> None:
        """Begin a new search in place, with the current values of ``lengths``."""
        for tensor, start in zip((self.hidden, self.cell, self.predicted), self._start, strict=True):
            tensor.copy_(start)
        for counter in (self.time, self.symbols, self.counts):
            counter.zero_()
        self.last_frame.fill_(-1)

    @property
    def active(self) -> Tensor:
        """Whether each row has frames left, bool [batch]."""
        return self.time < self.lengths

    def emit(self, found: Tensor, token: Tensor, frame: Tensor, duration: Tensor, confidence: Tensor) -> None:
        """Append at most one label to each row, and advance a row by one frame after ``max_symbols`` labels there.

        Args:
            found: whether the row has a new label, bool [batch]; otherwise its other values mean nothing.
            token: id of the label, int64 [batch].
            frame: encoder frame at which it was scored, int64 [batch].
            duration: frames that it advanced its row by, int64 [batch]; 0 for RNN-T.
            confidence: probability among labels and blank, float32 [batch].
        """
        column = self.counts.where(found, self.capacity)[:, None]
        self.tokens.scatter_(1, column, token[:, None])
        self.frames.scatter_(1, column, frame[:, None])
        self.durations.scatter_(1, column, duration[:, None])
        self.confidence.scatter_(1, column, confidence[:, None])
        self.counts += found

        again = found & (frame == self.last_frame)
        self.symbols.copy_((self.symbols * again + 1).where(found, self.symbols))
        self.last_frame.copy_(frame.where(found, self.last_frame))
        # A label with a duration has left its frame already; ``max_symbols`` applies to labels that stayed.
        self.time += found & (self.symbols >= self.max_symbols) & (self.last_frame == self.time)

    def result(self, columns: int) -> SearchResult:
        """Return the tokens; no row may have more than ``columns``."""
        frames, durations = self.frames[:, :columns], self.durations[:, :columns]
        return SearchResult(
            tokens=self.tokens[:, :columns],
            frames=frames,
            ends=frames + (durations if self._is_tdt else 1),
            durations=durations if self._is_tdt else None,
            confidence=self.confidence[:, :columns],
            counts=self.counts,
        )
