"""Packing the nodes of several clips' lattices without padding, to be processed in parts."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from training.losses.lattice import diagonals_of

# Most lattice entries of a group, for each node that it may have. Clips of equal length have 1.3 a node, others more.
_PLACES_A_NODE = 4


@dataclass(frozen=True, slots=True)
class Nodes:
    """Consecutive nodes; all tensors are int64 [nodes]."""

    frame: Tensor  # index of their frames among all frames of the clips, padding included
    prediction: Tensor  # index of their predictions among all predictions of the clips, padding included
    next_label: Tensor  # the next label of the transcript; any label at its end
    lattice_index: Tensor  # their indices in the clips' lattices, see ``lattice.align``


@dataclass(frozen=True, slots=True)
class Sums:
    """The nodes of a part that belong to each frame, or to each prediction: a first one, and then one every ``step``.

    All tensors are int64, with an entry for each frame or prediction that may have nodes in the part.
    """

    row: Tensor  # unique index of the frame or prediction among all of the clips, padding included
    first: Tensor  # its first node, counted from the beginning of the part
    step: Tensor  # distance of its nodes
    count: Tensor  # number of its nodes; 0 or less for none


class PackedClips:
    """The nodes of some clips in a row, without padding.

    Args:
        sizes: numbers of frames and labels of each clip.
        tokens: labels of the transcripts, and any label after the last, [clips, labels + 1].
        frames: number of frames of a clip with its padding.

    Attributes:
        size: number of nodes.
        lattice: clips, diagonals and labels + 1 of their lattices.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], tokens: Tensor, frames: int) -> None:
        counts = [of_clip * (labels + 1) for of_clip, labels in sizes]
        longest, most = (max(each) for each in zip(*sizes, strict=True))
        self.size = sum(counts)
        self.lattice = len(sizes), diagonals_of(longest, most), most + 1
        self._tokens, self._frames = tokens, frames
        self._sizes = sizes
        self._last_of = list(accumulate(counts))
        self._frames_before = list(accumulate((of_clip for of_clip, _ in sizes), initial=0))
        self._predictions_before = list(accumulate((labels + 1 for _, labels in sizes), initial=0))
        # Memory that is not pinned is copied before the call returns, so it may be freed at once.
        of_clips = torch.tensor([*zip(*sizes, strict=True)]).to(tokens.device, non_blocking=True)
        self._frame_counts, self._widths = of_clips[0], of_clips[1] + 1
        self._counts = self._frame_counts * self._widths
        self._ends, self._frame_ends, self._prediction_ends = (
            each.cumsum(0) for each in (self._counts, self._frame_counts, self._widths)
        )

    def parts(self, most: int) -> list[slice]:
        """Return the ranges of parts with at most ``most`` nodes."""
        return [slice(first, min(first + most, self.size)) for first in range(0, self.size, most)]

    def nodes(self, part: slice) -> Nodes:
        """Return the nodes of a part, without waiting for the device."""
        index = torch.arange(part.start, part.stop, device=self._ends.device)
        clip = torch.searchsorted(self._ends, index, right=True)
        width = self._widths[clip]
        within = index - (self._ends - self._counts)[clip]
        frame, emitted = within // width, within % width
        _, diagonals, widest = self.lattice
        return Nodes(
            frame=clip * self._frames + frame,
            prediction=clip * self._tokens.size(1) + emitted,
            next_label=self._tokens[clip, emitted],
            lattice_index=(clip * diagonals + frame + emitted) * widest + emitted,
        )

    def of_frames(self, part: slice) -> Sums:
        """Return the nodes of each frame in a part."""
        (first, frame), (last, last_frame) = (self._frame_of(node) for node in (part.start, part.stop - 1))
        before = self._frames_before
        index = torch.arange(before[first] + frame, before[last] + last_frame + 1, device=self._ends.device)
        clip = torch.searchsorted(self._frame_ends, index, right=True)
        frames, width = index - (self._frame_ends - self._frame_counts)[clip], self._widths[clip]
        begins = (self._ends - self._counts)[clip] + frames * width
        inside = begins.clamp(min=part.start)
        return Sums(
            row=clip * self._frames + frames,
            first=inside - part.start,
            step=torch.ones_like(index),
            count=(begins + width).clamp(max=part.stop) - inside,
        )

    def of_predictions(self, part: slice) -> Sums:
        """Return the nodes of each prediction in a part."""
        first, last = (self._frame_of(node)[0] for node in (part.start, part.stop - 1))
        index = torch.arange(
            self._predictions_before[first], self._predictions_before[last + 1], device=self._ends.device
        )
        clip = torch.searchsorted(self._prediction_ends, index, right=True)
        width = self._widths[clip]
        emitted = index - (self._prediction_ends[clip] - width)
        own = (self._ends - self._counts)[clip] + emitted
        # The nodes own, own + width, and so on, from the part's first up to its end.
        begin = (-((own - part.start) // width)).clamp(min=0)
        return Sums(
            row=clip * self._tokens.size(1) + emitted,
            first=own + begin * width - part.start,
            step=width,
            count=torch.minimum(self._frame_counts[clip], -((own - part.stop) // width)) - begin,
        )

    def _frame_of(self, node: int) -> tuple[int, int]:
        """Return the clip of a node, and the frame in it."""
        clip = bisect_right(self._last_of, node)
        frames, labels = self._sizes[clip]
        return clip, (node - self._last_of[clip] + frames * (labels + 1)) // (labels + 1)


def fold(of_sums: Tensor, row: PackedClips, part: slice, of_frames: Tensor, of_predictions: Tensor) -> None:
    """Add gradients of nodes, [nodes, width], to those of their frames and predictions, float32 or wider."""
    nodes, of_sums = row.nodes(part), of_sums.to(of_frames.dtype)
    of_frames.index_add_(0, nodes.frame, of_sums)
    of_predictions.index_add_(0, nodes.prediction, of_sums)


def rows_of(sizes: Sequence[tuple[int, int]], most: int) -> Iterator[slice]:
    """Yield groups of clips, given their frames and labels, with at most ``most`` nodes, or single clips.

    Lattices are padded to the most frames and labels of a group, so clips of very different sizes are not grouped.
    """
    first = held = longest = widest = 0
    for clip, (frames, labels) in enumerate(sizes):
        size = frames * (labels + 1)
        longest, widest = max(longest, frames), max(widest, labels)
        places = (clip + 1 - first) * diagonals_of(longest, widest) * (widest + 1)
        if clip > first and (held + size > most or places > _PLACES_A_NODE * most):
            yield slice(first, clip)
            first, held, longest, widest = clip, 0, frames, labels
        held += size
    if sizes:
        yield slice(first, len(sizes))
