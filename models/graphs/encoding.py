"""From samples to encoder frames in one CUDA graph, for a few sizes of batches that are prepared before they come.

An encoder is a thousand kernels. A small batch is over before the host has launched them all, so a graph makes it
several times as fast; a large one keeps the device busy by itself, and runs operation by operation.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from models.graphs.capture import Pool, captured, shared_pool
from models.graphs.sizes import Sizes

# Audio and padding of the largest batch with a graph. Up to here, launches take longer than what they launch: at 0.6 B
# parameters, 2,000 frames of 80 ms are 2.4 TFLOP, a few milliseconds.
MOST_SECONDS = 160.0


class Encoded(NamedTuple):
    """What an encoder makes of a batch.

    Attributes:
        frames: encoder frames, [batch, frames, width].
        lengths: encoder frames of each row, int64 [batch].
        features: features of each row, int64 [batch].
    """

    frames: Tensor
    lengths: Tensor
    features: Tensor


Encode = Callable[[Tensor, Tensor], Encoded]


class GraphedEncoding:
    """An encoder with its front end, whose graphs share their memory: never two run at the same time."""

    def __init__(self, encode: Encode, device: torch.device, most_samples: int) -> None:
        """Prepare nothing yet.

        Args:
            encode: takes waveforms [batch, samples], float32, and the samples of each row, int64 [batch], both on the
                device; it allocates no shape that depends on their values, and does not wait for the device.
            device: where it runs.
            most_samples: samples and padding of the largest batch with a graph.
        """
        self._encode = encode
        self._device = device
        self._most_samples = most_samples
        self._pool = shared_pool(device)
        self._waveforms = torch.zeros(0, device=device)
        self._uploads = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.sizes: Sizes[_Size] = Sizes()

    @torch.no_grad()
    def prepare(self, rows: int, samples: int) -> None:
        """Capture what batches of up to so many rows, of exactly so many samples with their padding, need.

        To be called for the largest sizes first: what they take of the memory is enough for the others.
        """
        sizes = [most for most in _powers_down_from(rows) if samples and most * samples <= self._most_samples]
        if sizes and not len(self._waveforms):
            self._waveforms = torch.zeros(self._most_samples, device=self._device)
        for most in sizes:
            waveforms = self._waveforms[: most * samples].view(most, samples)
            self.sizes.get((most, samples), partial(_Size, self._encode, waveforms, self._pool))

    @torch.no_grad()
    def __call__(self, waveforms: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch.

        Args:
            waveforms: [batch, samples], float32, on the host; anything may stand in the padding.
            lengths: samples of each row, int64 [batch], on the host.

        Returns:
            Tensors that stay as they are until the next call only.
        """
        rows, samples = waveforms.shape
        waveforms, lengths = self._uploaded(waveforms), self._uploaded(lengths)
        size = self.sizes.known((_powers_down_from(rows)[0], samples))
        if size is not None:
            return size.encode(waveforms, lengths)
        return self._encode(waveforms, lengths)

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

    def __init__(self, encode: Encode, waveforms: Tensor, pool: Pool | None) -> None:
        self._waveforms = waveforms
        self._lengths = torch.zeros(waveforms.size(0), dtype=torch.int64, device=waveforms.device)
        self._encoded: Encoded

        def work() -> None:
            self._encoded = encode(self._waveforms, self._lengths)

        self._replay = captured(work, waveforms.device, pool)

    def encode(self, waveforms: Tensor, lengths: Tensor) -> Encoded:
        rows = waveforms.size(0)
        self._waveforms[:rows] = waveforms
        self._lengths[rows:].zero_()  # rows that no utterance has are empty
        self._lengths[:rows] = lengths
        self._replay()
        return Encoded(*(tensor[:rows] for tensor in self._encoded))


def _powers_down_from(rows: int) -> list[int]:
    """Return the powers of two from the first that is enough for ``rows`` down to 1."""
    return [1 << power for power in range((rows - 1).bit_length(), -1, -1)]
