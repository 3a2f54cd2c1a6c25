"""The nodes of some clips' lattices in one row, without padding, to be gone through part by part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.losses.lattice import diagonals_of


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


class Row:
    """The row of some clips.

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
        self._widths = torch.tensor([labels + 1 for _, labels in sizes], device=tokens.device)
        self._counts = torch.tensor(counts, device=tokens.device)
        self._ends = self._counts.cumsum(0)

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


def rows_of(sizes: Sequence[tuple[int, int]], most: int) -> Iterator[slice]:
    """Yield clips that make a row of so many nodes at most, or are alone.

    Args:
        sizes: frames and labels of all clips.
        most: nodes.
    """
    first = held = 0
    for clip, (frames, labels) in enumerate(sizes):
        size = frames * (labels + 1)
        if held and held + size > most:
            yield slice(first, clip)
            first, held = clip, 0
        held += size
    if sizes:
        yield slice(first, len(sizes))
