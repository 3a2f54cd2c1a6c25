"""What recognition models and language identifiers share: batches of waveforms, and CUDA graphs prepared for them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.device.precision import Precision, round_products
from models.graphs.passes import GraphedPasses
from models.graphs.sizes import Sizes, row_sizes

Waveform = npt.NDArray[np.float32]


class DeviceModel:
    """A model on its device.

    Attributes:
        device: the device that it computes on.
        precision: one of ``models.device.precision.Precision``.
        sample_rate: rate of the audio it takes, in Hz.
        passes: runs what takes waveforms, by graphs where there are some.
    """

    device: torch.device
    precision: Precision
    sample_rate: int
    passes: GraphedPasses
    _sizes: dict[str, Sizes[Any]]  # by what graphs compute

    def batch(self, pcm: Sequence[Waveform], samples: int | None = None) -> tuple[Tensor, Tensor]:
        """Stack utterances into a batch in host memory, pinned if the device is a GPU.

        Args:
            pcm: mono float32 arrays, at least one.
            samples: samples in a row, padding included; None: those of the longest utterance.

        Returns:
            Waveforms, float32 [batch, samples], whose padding is uninitialised; and lengths in samples, int64 [batch].
        """
        sizes = [len(utterance) for utterance in pcm]
        pinned = self.device.type == "cuda"
        waveforms = torch.empty(len(pcm), max(sizes) if samples is None else samples, pin_memory=pinned)
        for row, utterance in zip(waveforms.numpy(), pcm, strict=True):
            row[: len(utterance)] = utterance
        return waveforms, torch.tensor(sizes, pin_memory=pinned)

    def prepare(self, rows: int, samples: int) -> list[int]:
        """On a GPU, capture CUDA graphs for batches of up to ``rows`` rows of ``samples`` samples.

        Call it for the longest rows first: the memory of their graphs is enough for the others.

        Returns:
            Numbers of rows, descending. Run one batch of each: it captures the graphs of the search.
        """
        if self.device.type == "cpu":
            return [rows]
        with self._as_current_device():
            self.passes.prepare(rows, samples)
        return [rows, *(size for size in row_sizes(rows) if size < rows)]

    def drop_sizes(self) -> None:
        """Drop what ``prepare`` and batches have captured, and its memory."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a search may still write to it
        self.passes.clear()
        for sizes in self._sizes.values():
            sizes.clear()

    def graphs(self) -> dict[str, dict[str, int]]:
        """Return the number of CUDA graphs by purpose and state; empty on a CPU."""
        return {} if self.device.type == "cpu" else {kind: sizes.counted() for kind, sizes in self._sizes.items()}

    def _as_current_device(self) -> AbstractContextManager[object]:
        """Return a context whose current GPU is the model's: kernels are launched there, wherever their tensors are.

        The call also sets, for the whole process, how the model's products round.
        """
        round_products(self.device, self.precision)
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()


def batches(lengths: Sequence[int], capacity: float) -> Iterator[list[int]]:
    """Yield the indices of utterances in batches that, padded, hold at most ``capacity`` samples, or one utterance."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > capacity:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def check_samples(pcm: Sequence[Waveform]) -> None:
    """Raise ValueError if an utterance is not a mono float32 array, or its samples are not finite."""
    check_arrays(pcm)
    for index, samples in enumerate(pcm):
        check_finite(index, samples)


def check_arrays(pcm: Sequence[Waveform]) -> None:
    """Raise ValueError if an utterance is not a mono float32 array."""
    for index, samples in enumerate(pcm):
        if not isinstance(samples, np.ndarray) or samples.dtype != np.float32 or samples.ndim != 1:
            kind = f"{samples.dtype} {samples.shape}" if isinstance(samples, np.ndarray) else type(samples).__name__
            raise ValueError(f"utterance {index} must be a mono float32 array, not {kind}")


def check_finite(index: int, samples: Waveform) -> None:
    """Raise ValueError if samples of the utterance with this index are not finite."""
    if not np.isfinite(samples).all():
        raise ValueError(f"utterance {index} has samples that are infinite or not numbers")
