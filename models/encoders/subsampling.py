"""What shortens the features before the Conformer layers: strided convolutions, or stacking."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu_

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
        later = SeparableStage if config.subsampling == "dw_striding" else Stage
        self.stages = nn.ModuleList([FirstStage(channels), *(later(channels) for _ in range(1, stages))])
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
        if features.device.type != "cpu" or features.size(0) == 0:
            return self._shortened(features, lengths)
        # The images of one clip stay in a CPU's caches; those of a batch are fetched from the system and given back.
        rows = [self._shortened(features[row : row + 1], lengths[row : row + 1]) for row in range(features.size(0))]
        return torch.cat([frames for frames, _ in rows]), torch.cat([length for _, length in rows])

    def _shortened(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        padding = ~valid_positions(lengths, features.size(2))
        images = features.masked_fill(padding[:, None], 0.0).transpose(1, 2)[:, None]  # [batch, channels, time, mels]
        for stage in self.stages:
            images = stage(images)
            lengths = halved(lengths)
            valid = valid_positions(lengths, images.size(2))
            images = relu_(images.mul_(valid[:, None, :, None]))
        return self.projection(images.transpose(1, 2).flatten(2)), lengths


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


class FirstStage(nn.Module):
    """A strided convolution of the features themselves, as a product: libraries are slow at a single channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, channels, kernel_size=3, stride=2, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """Halve time and bands of ``images`` [batch, 1, time, bands]; channels lie innermost in what is returned."""
        assert self.convolution.bias is not None
        patches = pad(images[:, 0], (1, 1, 1, 1)).unfold(1, 3, 2).unfold(2, 3, 2).flatten(3)
        # Not linear(): with a bias, it first writes that over the whole result, and this takes as long as the product.
        convolved = (patches @ self.convolution.weight.flatten(1).T).add_(self.convolution.bias)
        return convolved.permute(0, 3, 1, 2)


class Stage(nn.Module):
    """A strided convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """Halve time and bands of ``images`` [batch, channels, time, bands]."""
        halves: Tensor = self.convolution(images)
        return halves


class SeparableStage(nn.Module):
    """A strided depthwise convolution and a pointwise one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        """Halve time and bands of ``images`` [batch, channels, time, bands]."""
        halves: Tensor = self.pointwise(self.depthwise(images))
        return halves
