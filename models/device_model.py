"""What all models have in common on their device: batches of waveforms, and the passes that are prepared for them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.graphs.passes import GraphedPasses
from models.graphs.sizes import row_sizes
from models.precision import Precision, round_products

Waveform = npt.NDArray[np.float32]


class DeviceModel:
    """A model on its device.

    Attributes:
        device: the device that it computes on.
        precision: how its products round.
        sample_rate: rate of the audio it takes, in Hz.
    """

    device: torch.device
    precision: Precision
    sample_rate: int
    _passes: GraphedPasses

    def batch(self, pcm: Sequence[Waveform], samples: int | None = None) -> tuple[Tensor, Tensor]:
        """Stack utterances into a batch, for a GPU in pinned memory.

        Args:
            pcm: mono float32 arrays, at least one.
            samples: length of a row, padding included; None is that of the longest utterance.

        Returns:
            Waveforms [batch, samples], float32, with uninitialised padding, and the samples of each row.
        """
        sizes = [len(utterance) for utterance in pcm]
        pinned = self.device.type == "cuda"
        waveforms = torch.empty(len(pcm), max(sizes) if samples is None else samples, pin_memory=pinned)
        for row, utterance in zip(waveforms.numpy(), pcm, strict=True):
            row[: len(utterance)] = utterance
        return waveforms, torch.tensor(sizes, pin_memory=pinned)

    def prepare(self, rows: int, samples: int) -> list[int]:
        """On a GPU, capture graphs for batches of up to ``rows`` rows of ``samples`` samples.

        Call it with the longest first.

        Returns:
            Batch sizes to run once, the largest first, so that searches prepare for them before requests wait.
        """
        if self.device.type == "cpu":
            return [rows]
        with self._as_current_device():
            self._passes.prepare(rows, samples)
        return [rows, *(size for size in row_sizes(rows) if size < rows)]

    def _as_current_device(self) -> AbstractContextManager[object]:
        """Make the model's GPU the current one, because kernels are launched there, wherever their tensors are.

        Products then round as the model's precision says.
        """
        round_products(self.device, self.precision)
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
