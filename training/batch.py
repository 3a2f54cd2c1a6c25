"""A padded batch of clips for the training loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from training.examples import Example
from training.sampler import Position
from training.student import FRONT_END


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of clips."""

    position: Position  # its position in the run
    waveforms: Tensor  # [batch, samples], float32, zero in the padding
    lengths: Tensor  # samples of each clip, [batch]
    masked_frames: Tensor  # features that SpecAugment masks, bool [batch, features]; never in the padding
    masked_mels: Tensor  # bands that it masks, bool [batch, mels]
    tokens: Tensor  # labels of the transcripts, [batch, longest]
    token_lengths: Tensor  # labels of each transcript, [batch]
    sequences: Tensor  # prompts and transcripts for an attention decoder, [batch, longest]; empty without one
    sequence_lengths: Tensor  # labels of each sequence, [batch]
    audio_seconds: float  # audio in it, without padding
    skipped: tuple[str, ...] = ()  # for each clip that cannot be used and is left out, the reason
    part: int = 0  # its number among the parts of its step
    is_silence: bool = False  # whether it holds no clip but silence, which has no loss

    @property
    def is_lost(self) -> bool:
        """Whether none of its clips can be used."""
        return bool(self.skipped) and self.is_silence

    @property
    def read_labels(self) -> tuple[Tensor, Tensor]:
        """Return what a decoder reads, [batch, longest], and its lengths: sequences, or else transcripts."""
        if self.sequences.size(1):
            return self.sequences, self.sequence_lengths
        return self.tokens, self.token_lengths

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device, but lengths on the host, which would wait to read them.

        If the batch is pinned, the host does not wait for the copies either.
        """
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """Return the batch in memory that a GPU copies from while the host goes on."""
        return self._mapped(Tensor.pin_memory)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(
            self,
            waveforms=change(self.waveforms),
            masked_frames=change(self.masked_frames),
            masked_mels=change(self.masked_mels),
            tokens=change(self.tokens),
            sequences=change(self.sequences),
        )


def collate(examples: Sequence[Example], position: Position, samples: int) -> Batch:
    """Pad clips to ``samples``, or to a longer clip, which is possible if a manifest rounds durations."""
    samples = max(samples, *(len(example.samples) for example in examples))
    features = max(1, samples // FRONT_END.hop)
    return Batch(
        position=position,
        waveforms=_stacked([example.samples for example in examples], samples),
        lengths=torch.tensor([len(example.samples) for example in examples]),
        masked_frames=_stacked([example.masked_frames for example in examples], features),
        masked_mels=_stacked([example.masked_mels for example in examples], len(examples[0].masked_mels)),
        tokens=_stacked([example.tokens for example in examples], max(len(one.tokens) for one in examples)),
        token_lengths=torch.tensor([len(example.tokens) for example in examples]),
        sequences=_stacked([example.sequence for example in examples], max(len(one.sequence) for one in examples)),
        sequence_lengths=torch.tensor([len(example.sequence) for example in examples]),
        audio_seconds=sum(len(example.samples) for example in examples) / FRONT_END.sample_rate,
    )


def _stacked(arrays: "Sequence[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]", length: int) -> Tensor:
    """Return arrays as one tensor [batch, length, ...], zero where they end early."""
    stacked = np.zeros((len(arrays), length, *arrays[0].shape[1:]), dtype=arrays[0].dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(stacked)
