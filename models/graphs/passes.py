"""What a model does with samples in one pass, as one CUDA graph for each of a few sizes, prepared before batches come.

An encoder is a thousand kernels. A small batch is over before the host has launched them all, so a graph makes it
several times as fast; a large one keeps the device busy by itself, and runs operation by operation.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import partial

import torch
from torch import Tensor

from models.graphs.capture import Pool, captured, shared_pool
from models.graphs.sizes import Sizes, graph_rows

# Audio and padding of the largest batch with a graph. Up to here, launches take longer than what they launch: at 0.6 B
# parameters, 2,000 frames of 80 ms are 2.4 TFLOP, a few milliseconds.
MOST_SECONDS = 160.0

# Takes waveforms [batch, samples], float32, and the samples of each row, int64 [batch], both on the device; the latter
# on the host as well, or None in a graph, which is for any lengths. It returns tensors with a row for each utterance,
# allocates no shape that depends on values of the device, and does not wait for it.
Pass = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, ...]]


class GraphedPasses:
    """The passes of a model, whose graphs share their memory: never two run at the same time."""

    def __init__(self, passes: Collection[Pass], device: torch.device, most_samples: int) -> None:
        """Prepare nothing yet.

        Args:
            passes: those that there are to be graphs of.
            device: where they run.
            most_samples: samples and padding of the largest batch with a graph.
        """
        self._passes = passes
        self._device = device
        self._most_samples = most_samples
        self._pool = shared_pool(device)
        self._waveforms = torch.zeros(0, device=device)
        self._uploads = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.sizes: Sizes[_Size] = Sizes()
        self._rows: dict[int, list[int]] = {}  # of the graphs for so many samples, ascending

    @torch.no_grad()
    def prepare(self, rows: int, samples: int) -> None:
        """Capture what batches of up to so many rows, of exactly so many samples with their padding, need.

        To be called for the largest sizes first: what they take of the memory is enough for the others.
        """
        sizes = graph_rows(min(rows, self._most_samples // samples)) if samples else []
        if sizes and not len(self._waveforms):
            self._waveforms = torch.zeros(self._most_samples, device=self._device)
        self._rows[samples] = sorted({*self._rows.get(samples, ()), *sizes})
        for most in sizes:
            waveforms = self._waveforms[: most * samples].view(most, samples)
            for work in self._passes:
                self.sizes.get((work, most, samples), partial(_Size, work, waveforms, self._pool))

    @torch.no_grad()
    def __call__(self, work: Pass, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Let a batch go through a pass.

        Args:
            work: the pass.
            waveforms: [batch, samples], float32, on the host; anything may stand in the padding.
            lengths: samples of each row, int64 [batch], on the host.

        Returns:
            What the pass returns; these tensors stay as they are until the next call only.
        """
        rows, samples = waveforms.shape
        known, waveforms, lengths = lengths, self._uploaded(waveforms), self._uploaded(lengths)
        larger = self._rows.get(samples, [])
        place = bisect_left(larger, rows)
        size = self.sizes.known((work, larger[place], samples)) if place < len(larger) else None
        return work(waveforms, lengths, known) if size is None else size.run(waveforms, lengths)

    def _uploaded(self, tensor: Tensor) -> Tensor:
        """Copy to the device, which may still be busy with the batch before."""
        if self._uploads is None:
            return tensor.to(self._device)
        computing = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._uploads):
            uploaded = tensor.to(self._device, non_blocking=True)
        computing.wait_stream(self._uploads)
        uploaded.record_stream(computing)  # its memory is not given to the next upload before it was read
        return uploaded


class _Size:
    """Input, output and graph of batches of up to so many rows."""

    def __init__(self, work: Pass, waveforms: Tensor, pool: Pool | None) -> None:
        self._waveforms = waveforms
        self._lengths = torch.zeros(waveforms.size(0), dtype=torch.int64, device=waveforms.device)
        self._returned: tuple[Tensor, ...] = ()

        def run() -> None:
            self._returned = work(self._waveforms, self._lengths, None)

        self._replay = captured(run, waveforms.device, pool)

    def run(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        rows = waveforms.size(0)
        self._waveforms[:rows] = waveforms
        self._lengths[rows:].zero_()  # rows that no utterance has are empty
        self._lengths[:rows] = lengths
        self._replay()
        return tuple(tensor[:rows] for tensor in self._returned)
