"""The nodes of some clips' lattices in one row, without padding, to be gone through part by part."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from training.losses.lattice import diagonals_of

# Clips of one length have 1.3, and more the shorter they are.
_PLACES_A_NODE = 4


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes that follow each other, each with its frame and the labels said before; all are int64 [nodes].

    Attributes:
        heard: places of their frames among all frames of the clips, padding included.
        said: places of their predictions among all predictions of the clips, padding included.
        next_label: the label that comes next in the transcript; any at its end.
        place: their places in the clips' lattices, as ``lattice.align`` has them.
    """

    heard: Tensor
    said: Tensor
    next_label: Tensor
    place: Tensor


@dataclass(frozen=True, slots=True)
class Sums:
    """Which nodes of a part belong to one frame, or to one prediction: every so many, beginning with one of them.

    All are int64, one for each frame or prediction that has nodes in the part.

    Attributes:
        place: of the frame or prediction among all of the clips, padding included; no two are the same.
        first: its first node, counted from the part's.
        step: from one of its nodes to the next.
        count: of its nodes; not above 0 for one that has none after all.
    """

    place: Tensor
    first: Tensor
    step: Tensor
    count: Tensor


class PackedClips:
    """The nodes of some clips in one row, without padding.

    Args:
        sizes: frames and labels of each.
        tokens: labels of the transcripts, and any one behind the last, [clips, labels + 1].
        frames: that a clip has with its padding.

    Attributes:
        size: nodes in it.
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
        self._said_before = list(accumulate((labels + 1 for _, labels in sizes), initial=0))
        # From memory that is not pinned, so that nobody waits: it is copied before the call returns.
        of_clips = torch.tensor([*zip(*sizes, strict=True)]).to(tokens.device, non_blocking=True)
        self._frame_counts, self._widths = of_clips[0], of_clips[1] + 1
        self._counts = self._frame_counts * self._widths
        self._ends, self._frame_ends, self._said_ends = (
            each.cumsum(0) for each in (self._counts, self._frame_counts, self._widths)
        )

    def parts(self, most: int) -> list[slice]:
        """Return it in parts of so many nodes."""
        return [slice(first, min(first + most, self.size)) for first in range(0, self.size, most)]

    def nodes(self, part: slice) -> Nodes:
        """Return the nodes of a part; this waits for no device."""
        index = torch.arange(part.start, part.stop, device=self._ends.device)
        clip = torch.searchsorted(self._ends, index, right=True)
        width = self._widths[clip]
        within = index - (self._ends - self._counts)[clip]
        frame, said = within // width, within % width
        _, diagonals, widest = self.lattice
        return Nodes(
            heard=clip * self._frames + frame,
            said=clip * self._tokens.size(1) + said,
            next_label=self._tokens[clip, said],
            place=(clip * diagonals + frame + said) * widest + said,
        )

    def of_frames(self, part: slice) -> Sums:
        """Return which nodes of a part belong to which frame."""
        (first, frame), (last, last_frame) = (self._frame_of(node) for node in (part.start, part.stop - 1))
        before = self._frames_before
        index = torch.arange(before[first] + frame, before[last] + last_frame + 1, device=self._ends.device)
        clip = torch.searchsorted(self._frame_ends, index, right=True)
        frames, width = index - (self._frame_ends - self._frame_counts)[clip], self._widths[clip]
        begins = (self._ends - self._counts)[clip] + frames * width
        inside = begins.clamp(min=part.start)
        return Sums(
            place=clip * self._frames + frames,
            first=inside - part.start,
            step=torch.ones_like(index),
            count=(begins + width).clamp(max=part.stop) - inside,
        )

    def of_predictions(self, part: slice) -> Sums:
        """Return which nodes of a part belong to which prediction."""
        first, last = (self._frame_of(node)[0] for node in (part.start, part.stop - 1))
        index = torch.arange(self._said_before[first], self._said_before[last + 1], device=self._ends.device)
        clip = torch.searchsorted(self._said_ends, index, right=True)
        width = self._widths[clip]
        said = index - (self._said_ends[clip] - width)
        own = (self._ends - self._counts)[clip] + said
        # Of the nodes own, own + width and so on, those from the part's first on, and before its end.
        begin = (-((own - part.start) // width)).clamp(min=0)
        return Sums(
            place=clip * self._tokens.size(1) + said,
            first=own + begin * width - part.start,
            step=width,
            count=torch.minimum(self._frame_counts[clip], -((own - part.stop) // width)) - begin,
        )

    def _frame_of(self, node: int) -> tuple[int, int]:
        """Return the clip of a node, and the frame in it."""
        clip = bisect_right(self._last_of, node)
        frames, labels = self._sizes[clip]
        return clip, (node - self._last_of[clip] + frames * (labels + 1)) // (labels + 1)


def fold(met: Tensor, row: PackedClips, part: slice, of_heard: Tensor, of_said: Tensor) -> None:
    """Add up what nodes say of their frames and predictions.

    Args:
        met: gradients of what frames and predictions come to together, [nodes, width].
        row: the nodes' row.
        part: which of it they are.
        of_heard: gradients of frames, float32 or wider [frames, width]; changed.
        of_said: gradients of predictions, in the same dtype [predictions, width]; changed.
    """
    nodes, met = row.nodes(part), met.to(of_heard.dtype)
    of_heard.index_add_(0, nodes.heard, met)
    of_said.index_add_(0, nodes.said, met)


def rows_of(sizes: Sequence[tuple[int, int]], most: int) -> Iterator[slice]:
    """Yield clips that make a row of so many nodes at most, or are alone.

    Lattices have places for the most frames and labels of a row, so neither do clips share one that differ too much.

    Args:
        sizes: frames and labels of all clips.
        most: nodes.
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
