"""Where the padding of a batch lies, so that nothing is computed of it that need not be."""

import torch
from torch import Tensor


class Padding:
    """Takes the padding out of a batch of frames, and puts it back for those who look along time.

    What treats frame by frame, which is most of a Conformer, is then given the frames of all clips end to end, and a
    batch of many lengths costs about what its audio does. Where padding stays, both do nothing.

    Attributes:
        valid: which frames are real, bool [batch, time].
    """

    def __init__(self, valid: Tensor, *, stays: bool = True) -> None:
        """Describe a batch.

        Args:
            valid: which frames are real, bool [batch, time].
            stays: whether padding is left where it is, as on a GPU: how many frames are real is a value, for which a
                host would wait.
        """
        self.valid = valid
        # Of each real frame its place among all, and of each place the real frame that it holds, or holds instead.
        self._places: Tensor | None = None
        self._sources: Tensor | None = None
        if stays:
            return
        places = valid.flatten().nonzero().flatten()
        if 0 < len(places) < valid.numel():
            self._places = places
            self._sources = (valid.flatten().cumsum(0) - 1).clamp(min=0)

    def without(self, rows: Tensor) -> Tensor:
        """Return the real frames of ``rows`` [batch, time, width] end to end, [1, frames, width]."""
        return rows if self._places is None else rows.flatten(0, 1).index_select(0, self._places)[None]

    def with_it(self, frames: Tensor) -> Tensor:
        """Return rows [batch, time, width] of ``frames`` that ``without`` gave; other frames stand in the padding."""
        if self._sources is None:
            return frames
        return torch.unflatten(frames[0].index_select(0, self._sources), 0, self.valid.shape)
