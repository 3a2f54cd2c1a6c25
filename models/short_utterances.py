"""Padding short utterances with silence."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def with_silence_around(waveforms: Tensor, lengths: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Put short utterances into the middle of ``least`` samples of silence, as NeMo does for Canary.

    Args:
        waveforms: [batch, samples]; padding may hold anything.
        lengths: samples of each row, int64 [batch]; an empty row stays empty.
        least: fewest samples of an utterance.

    Returns:
        Waveforms of at least ``least`` samples, and their lengths.
    """
    before = silence_before(lengths, least)
    waveforms = pad(waveforms, (0, max(0, least - waveforms.size(1))))
    source = torch.arange(least, device=lengths.device) - before[:, None]
    silent = (source < 0) | (source >= lengths[:, None])
    start = waveforms[:, :least].gather(1, source.clamp(min=0)).masked_fill(silent, 0.0)
    return torch.cat((start, waveforms[:, least:]), dim=1), lengths_with_silence(lengths, least)


def lengths_with_silence(lengths: Tensor, least: int) -> Tensor:
    """Return the lengths after ``with_silence_around``, int64 [batch]."""
    return lengths.clamp(min=least).where(lengths > 0, lengths)


def silence_before(lengths: Tensor, least: int) -> Tensor:
    """Return the samples of silence before each utterance, [batch]: half of the missing ones, rounded down."""
    return ((least - lengths).clamp(min=0) // 2).where(lengths > 0, 0)
