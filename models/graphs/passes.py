"""Passes (from samples to encoder frames or tokens) as CUDA graphs for a few sizes, captured in the warm-up.

An encoder has a thousand kernels. A small batch is computed faster than the host can launch them, so a graph makes it
several times as fast. A large batch keeps the device busy, and runs without a graph.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath
from models.graphs.capture import captured
from models.graphs.pool import Pool
from models.graphs.sizes import Sizes, graph_rows

# Audio and padding of the largest batch with a graph. Up to here, launching takes longer than computing: at 0.6 B
# parameters, 2,000 frames of 80 ms are 2.4 TFLOP, a few milliseconds.
MOST_SECONDS = 160.0
# Of the largest value; of tokens, which confidences lie beside as bits.
_ALLOWED_SHARE = 2.0**-6
_EQUAL_SHARE = 0.7

# A pass takes waveforms [batch, samples], float32, and the samples of each row, int64 [batch], both on the device; then
# these lengths on the host, or None in a graph, which is for any lengths. It returns tensors with a row for each
# utterance. It must not allocate shapes that depend on values on the device, nor wait for it.
Pass = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, ...]]


class GraphedPasses:
    """Runs passes, by graphs if there are some; they share memory, because they never run at the same time.

    Attributes:
        works: the passes that have graphs.
        sizes: their graphs.
    """

    def __init__(self, passes: Sequence[Pass], device: torch.device, most_samples: int) -> None:
        """Keep the passes; ``prepare`` captures their graphs.

        Args:
            passes: the passes to capture graphs of.
            device: the device.
            most_samples: samples and padding of the largest batch with a graph.
        """
        self.works = passes
        self._device = device
        self._most_samples = most_samples
        self._pool = Pool()
        self._waveforms = torch.zeros(0, device=device)
        self._uploads = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.sizes: Sizes[_Prepared] = Sizes(device)
        self._compared: set[Pass] = set()
        self._rows: dict[int, list[int]] = {}  # rows of the graphs by samples of a row, ascending

    @torch.no_grad()
    def prepare(self, rows: int, samples: int) -> None:
        """Capture graphs for batches of up to ``rows`` rows of exactly ``samples`` samples, padding included.

        Call it for the largest sizes first, because their memory is enough for the others.
        """
        if not FAST_PATHS.allows(FastPath.ENCODER_GRAPHS):
            return
        sizes = graph_rows(min(rows, self._most_samples // samples)) if samples else []
        if sizes and not len(self._waveforms):
            self._waveforms = torch.zeros(self._most_samples, device=self._device)
        self._rows[samples] = sorted({*self._rows.get(samples, ()), *sizes})
        for most in sizes:
            waveforms = self._waveforms[: most * samples].view(most, samples)
            for work in self.works:
                self.sizes.get((work, most, samples), partial(self._prepare, work, waveforms))
        if not FAST_PATHS.allows(FastPath.ENCODER_GRAPHS):
            self.clear()

    def _prepare(self, work: Pass, waveforms: Tensor) -> "_Prepared":
        """Capture a graph, and compare the first of each pass with the operations that it repeats, on noise."""
        with FAST_PATHS.trying(FastPath.ENCODER_GRAPHS, lambda _: True):
            prepared = _Prepared(work, waveforms, self._pool)
            if FAST_PATHS.suits(waveforms.device) and work not in self._compared:
                self._compared.add(work)
                noise = torch.randn(waveforms.shape, device=waveforms.device) * 0.1
                rows = torch.arange(len(noise), 0, -1, device=noise.device)
                lengths = rows * noise.size(1) // len(noise)
                plain = [tensor.clone() for tensor in work(noise, lengths, None)]
                judged = [_agree(*pair) for pair in zip(prepared.run(noise, lengths), plain, strict=True)]
                why = "a graph and its operations: " + ", ".join(found for _, found in judged)
                FAST_PATHS.judge(FastPath.ENCODER_GRAPHS, why, agrees=all(agrees for agrees, _ in judged))
            return prepared

    def clear(self) -> None:
        """Drop all graphs; no pass may be under way."""
        self.sizes.clear()
        self._rows.clear()

    @torch.no_grad()
    def __call__(self, work: Pass, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Run a pass on a batch, by replaying its graph if there is one for this size.

        Args:
            work: the pass.
            waveforms: [batch, samples], float32, on the host; padding may hold anything.
            lengths: samples of each row, int64 [batch], on the host.

        Returns:
            The result of the pass, valid until the next call.
        """
        rows, samples = waveforms.shape
        known, waveforms, lengths = lengths, self._uploaded(waveforms), self._uploaded(lengths)
        larger = self._rows.get(samples, []) if FAST_PATHS.allows(FastPath.ENCODER_GRAPHS) else []
        place = bisect_left(larger, rows)
        prepared = self.sizes.known((work, larger[place], samples)) if place < len(larger) else None
        return work(waveforms, lengths, known) if prepared is None else prepared.run(waveforms, lengths)

    def _uploaded(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to the device, beside the computing of the batch before."""
        if self._uploads is None:
            return tensor.to(self._device)
        computing = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._uploads):
            uploaded = tensor.to(self._device, non_blocking=True)
        computing.wait_stream(self._uploads)
        uploaded.record_stream(computing)  # its memory is not reused before the pass has read it
        return uploaded


def _agree(replayed: Tensor, plain: Tensor) -> tuple[bool, str]:
    """Return whether values are equal up to rounding; of whole numbers, such as tokens, nearly all; and by how much."""
    if plain.is_floating_point():
        error, largest = float((replayed - plain).abs().max()), float(plain.abs().max())
        return error <= _ALLOWED_SHARE * largest, f"{error:.3g} of at most {largest:.3g}"
    equal = float((replayed == plain).double().mean())
    return equal >= _EQUAL_SHARE, f"{100 * equal:.0f} % of whole numbers are equal"


class _Prepared:
    """Input, output and graph for batches up to a number of rows."""

    def __init__(self, work: Pass, waveforms: Tensor, pool: Pool) -> None:
        self._waveforms = waveforms
        self._lengths = torch.zeros(waveforms.size(0), dtype=torch.int64, device=waveforms.device)
        self._returned: tuple[Tensor, ...] = ()

        def run() -> None:
            self._returned = work(self._waveforms, self._lengths, None)

        self._replay = captured(run, waveforms.device, pool)

    def run(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        rows = waveforms.size(0)
        self._waveforms[:rows] = waveforms
        self._lengths[rows:].zero_()  # rows without an utterance are empty
        self._lengths[:rows] = lengths
        self._replay()
        return tuple(tensor[:rows] for tensor in self._returned)
