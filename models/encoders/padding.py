"""Where the padding of a batch lies, so that nothing is computed of it that need not be."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from models.masking import valid_positions


class Padding:
    """Takes the padding out of a batch of frames, and puts it back for those who look along time and need rows.

    What treats frame by frame, which is most of a Conformer, is then given the frames of all clips end to end, and a
    batch of many lengths costs about what its audio does. Where padding stays, both do nothing.

    Attributes:
        lengths: real frames of each row, [batch].
        time: frames of each row with its padding.
        valid: which frames are real, bool [batch, time].
        starts: the place of each row's first frame among those that are left, int64 [batch + 1]; at last their number.
        is_none: whether the host knows that there is none.
    """

    def __init__(self, lengths: Tensor, time: int, total: int | None = None) -> None:
        """Describe a batch; the device is asked for nothing.

        Args:
            lengths: real frames of each row, int64 [batch].
            time: frames of each row with its padding.
            total: how many frames are real, where the host knows; None leaves the padding where it is.
        """
        self.lengths, self.time = lengths, time
        self.valid = valid_positions(lengths, time)
        # Of each real frame its place among all, and of each place the real frame that it holds, or holds instead.
        self._places: Tensor | None = None
        self._sources: Tensor | None = None
        rows = lengths.size(0)
        self.is_none = total == rows * time
        self._shared: dict[Hashable, Tensor] = {}
        if total is None or total in (0, rows * time):
            self.starts = torch.arange(rows + 1, device=lengths.device) * time
            return
        ends = lengths.cumsum(0)
        self.starts = torch.cat([torch.zeros_like(ends[:1]), ends])
        frame = torch.arange(total, device=lengths.device)
        row = torch.searchsorted(ends, frame, right=True)
        self._places = row * time + frame - self.starts[row]
        self._sources = (self.valid.flatten().cumsum(0) - 1).clamp(min=0)

    def once(self, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """Return what is computed of the padding alone; the layers of an encoder share it."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]

    def without(self, rows: Tensor) -> Tensor:
        """Return the real frames of ``rows`` [batch, time, width] end to end, [1, frames, width]."""
        return rows if self._places is None else rows.flatten(0, 1).index_select(0, self._places)[None]

    def with_it(self, frames: Tensor) -> Tensor:
        """Return rows [batch, time, width] of ``frames`` that ``without`` gave; other frames stand in the padding."""
        if self._sources is None:
            return frames
        return torch.unflatten(frames[0].index_select(0, self._sources), 0, self.valid.shape)
