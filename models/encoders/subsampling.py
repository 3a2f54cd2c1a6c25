"""What shortens the features before the Conformer layers: strided convolutions, or stacking."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from models.config import ConformerConfig
from models.masking import valid_positions


def halved(length: Tensor) -> Tensor:
    """Return what a stage leaves of a length: kernel 3, stride 2, padding 1; nothing stays nothing."""
    return (length + 1) // 2


class Subsampling(nn.Module):
    """Halves time and mel bands, once a stage, and projects what is left to the encoder's width.

    Every stage sees zeros beyond the end of a clip, so a clip gives the same alone and in any batch.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        channels = config.subsampling_channels
        stages = config.subsampling_factor.bit_length() - 1
        separable = config.subsampling == "dw_striding"
        self.stages = nn.ModuleList(
            SeparableStage(channels) if separable and index else Stage(channels if index else 1, channels)
            for index in range(stages)
        )
        bands = -(-config.mels // config.subsampling_factor)
        self.projection = nn.Linear(channels * bands, config.width)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten a batch.

        Args:
            features: [batch, mels, frames]; anything may stand in the padding.
            lengths: frames of each row, [batch].

        Returns:
            Frames [batch, ceil(frames / factor), width], and the frames of each row.
        """
        images = features.transpose(1, 2)[:, None]  # [batch, channels, time, mels]
        for stage in self.stages:
            images = stage(_mask_time(images, lengths))
            lengths = halved(lengths)
        rows = _mask_time(images, lengths).transpose(1, 2).flatten(2)
        return self.projection(rows), lengths


class Stacking(nn.Module):
    """Puts features side by side, as many as the factor says, and projects them to the encoder's width.

    Features that are left over at the end of a clip are dropped. NeMo does so for a clip alone; in a batch it keeps
    them or not by how long the longest clip is.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.factor = config.subsampling_factor
        self.projection = nn.Linear(self.factor * config.mels, config.width)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten a batch.

        Args:
            features: [batch, mels, frames]; anything may stand in the padding.
            lengths: frames of each row, [batch].

        Returns:
            Frames [batch, ceil(frames / factor), width], and the frames of each row.
        """
        padding = ~valid_positions(lengths, features.size(2))
        silenced = features.masked_fill(padding[:, None], 0.0).transpose(1, 2)
        whole = pad(silenced, (0, 0, 0, -silenced.size(1) % self.factor))
        return self.projection(torch.unflatten(whole, 1, (-1, self.factor)).flatten(2)), lengths // self.factor


class Stage(nn.Module):
    """A strided convolution and its activation."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels_in, channels, kernel_size=3, stride=2, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """Halve time and bands of ``images`` [batch, channels, time, bands]."""
        return relu(self.convolution(images))


class SeparableStage(nn.Module):
    """A strided depthwise convolution, a pointwise one, and their activation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        """Halve time and bands of ``images`` [batch, channels, time, bands]."""
        return relu(self.pointwise(self.depthwise(images)))


def _mask_time(images: Tensor, lengths: Tensor) -> Tensor:
    padding = ~valid_positions(lengths, images.size(2))
    return images.masked_fill(padding[:, None, :, None], 0.0)
