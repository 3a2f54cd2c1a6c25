"""The padding of a batch of frames, and how to skip it."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from models.encoders.masking import valid_positions


class Padding:
    """Removes the padding of a batch of frames, and puts it back for operations along time, which need rows.

    Operations on single frames, most of a Conformer, then get the frames of all clips end to end, so a batch of many
    lengths costs about as much as its audio. If ``total`` is not known, padding stays, and both do nothing.

    Attributes:
        lengths: real frames of each row, [batch].
        time: frames of each row, padding included.
        valid: which frames are real, bool [batch, time].
        starts: index of each row's first frame among those that ``without`` returns, int64 [batch + 1]; the last entry
            is their number.
        is_none: whether the host knows that there is no padding.
    """

    def __init__(self, lengths: Tensor, time: int, total: int | None = None) -> None:
        """Describe a batch, without waiting for the device.

        Args:
            lengths: real frames of each row, int64 [batch].
            time: frames of each row, padding included.
            total: number of real frames, if the host knows it; with None, padding stays.
        """
        self.lengths, self.time = lengths, time
        self.valid = valid_positions(lengths, time)
        # The index of each real frame among all frames, and for each frame the real frame that it is or is filled with.
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
        """Return a tensor that depends on the padding alone, computed once for all layers of an encoder."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]

    def without(self, rows: Tensor) -> Tensor:
        """Return the real frames of ``rows`` [batch, time, width] end to end, [1, frames, width]."""
        return rows if self._places is None else rows.flatten(0, 1).index_select(0, self._places)[None]

    def with_it(self, frames: Tensor) -> Tensor:
        """Return rows [batch, time, width] of frames that ``without`` returned; padding holds other frames."""
        if self._sources is None:
            return frames
        return torch.unflatten(frames[0].index_select(0, self._sources), 0, self.valid.shape)
