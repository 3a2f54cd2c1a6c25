"""Look-ahead over batches of a few sizes, each with its own state and its own graph (drivers/graph.py)."""

import torch
from torch import Tensor

from models.graphs.sizes import Sizes, frame_size, row_sizes
from models.heads.transducer import Joint, Predictor
from models.search.drivers.graph import Replay
from models.search.look_ahead import WINDOW, LookAhead, look_ahead
from models.search.result import SearchResult
from models.search.state import TransducerState

# A clip of 10 s takes about 50 steps: four replays, of which the last is half idle.
STEPS = 16


class GraphedLookAhead:
    """Greedy transducer search without the host in its way.

    Batches of about one size share a state: memory is taken for each size once, at its first batch.
    """

    def __init__(self, predictor: Predictor, joint: Joint, max_symbols: int, steps: int = STEPS) -> None:
        self._predictor = predictor
        self._joint = joint
        self._max_symbols = max_symbols
        self._steps = steps
        self.sizes: Sizes[_Size] = Sizes()

    @torch.no_grad()
    def search(self, encoded: Tensor, lengths: Tensor) -> SearchResult:
        """Search a batch, as ``look_ahead`` does.

        Args:
            encoded: [batch, frames, width], in the dtype of the joint.
            lengths: valid frames of each row, [batch].

        Returns:
            Tensors of its own: the next batch does not change them.
        """
        size = self._size(encoded) if encoded.size(0) and encoded.size(1) else None
        if size is None:
            return look_ahead(encoded, lengths, self._predictor, self._joint, self._max_symbols)
        return size.search(encoded, lengths)

    def _size(self, encoded: Tensor) -> "_Size | None":
        rows, frames = row_sizes(encoded.size(0))[0], frame_size(encoded.size(1))
        return self.sizes.get(
            (rows, frames),
            lambda: _Size(
                encoded.new_zeros(rows, frames, encoded.size(2)),
                self._predictor,
                self._joint,
                self._max_symbols,
                self._steps,
            ),
        )


class _Size:
    """State and graph of batches of up to as many rows, and frames, as there are in ``largest``."""

    def __init__(self, largest: Tensor, predictor: Predictor, joint: Joint, max_symbols: int, steps: int) -> None:
        self._joint = joint
        self._steps = steps
        self._projected = joint.encoder_projection(largest)
        self._lengths = torch.zeros(largest.size(0), dtype=torch.int64, device=largest.device)
        self._state = TransducerState(self._lengths, largest.size(1), predictor, joint, max_symbols)
        self._form = LookAhead(self._projected, predictor, joint, WINDOW)
        self._going = torch.zeros(1, dtype=torch.bool, device=largest.device)
        self._replay = Replay(self._advance, self._going)

    def search(self, encoded: Tensor, lengths: Tensor) -> SearchResult:
        rows, frames = encoded.shape[:2]
        self._projected[:rows, :frames] = self._joint.encoder_projection(encoded)
        self._lengths.zero_()
        self._lengths[:rows] = lengths
        self._state.restart()
        replays = self._replay.until_done(most=self._state.capacity // self._steps + 1)
        return self._state.result(columns=min(replays * self._steps, self._state.capacity)).first(rows)

    def _advance(self) -> None:
        for _ in range(self._steps):
            self._form.step(self._state)
        self._going.copy_(self._state.active.any())
