"""What shortens the features before the Conformer layers: strided convolutions, or stacking."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu_

from models.config import ConformerConfig
from models.masking import valid_positions

# Features that a CPU takes at once. The memory for images of more is fetched from the system, and given back, at every
# call; those of fewer are more calls.
_PIECE = 1024


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
            stacked = self._stacked(features, lengths)
        else:
            rows = range(features.size(0))
            stacked = torch.cat([self._in_pieces(features[row : row + 1], lengths[row : row + 1]) for row in rows])
        for _ in self.stages:
            lengths = halved(lengths)
        return self.projection(stacked), lengths

    def _in_pieces(self, features: Tensor, lengths: Tensor) -> Tensor:
        factor = 1 << len(self.stages)
        pieces = []
        for begin in range(0, features.size(2), _PIECE):
            # A frame of what comes out depends on those that it is made of and on the one before it.
            before = factor if begin else 0
            piece = features[:, :, begin - before : begin + _PIECE]
            pieces.append(self._stacked(piece, (lengths - begin + before).clamp(min=0))[:, before // factor :])
        return torch.cat(pieces, dim=1)

    def _stacked(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return what is to be projected: of each frame that is left, all channels of all bands."""
        padding = ~valid_positions(lengths, features.size(2))
        images = features.masked_fill(padding[:, None], 0.0).transpose(1, 2)[:, None]  # [batch, channels, time, mels]
        for stage in self.stages:
            lengths = halved(lengths)
            images = relu_(stage(images, valid_positions(lengths, -(-images.size(2) // 2))))
        return images.transpose(1, 2).flatten(2)


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

    def forward(self, images: Tensor, valid: Tensor) -> Tensor:
        """Halve time and bands of ``images`` [batch, 1, time, bands]; see ``Stage``."""
        assert self.convolution.bias is not None
        patches = pad(images[:, 0], (1, 1, 1, 1)).unfold(1, 3, 2).unfold(2, 3, 2).flatten(3)
        # The bias is the weight of a column of ones, and padding is silenced here: the product is touched once.
        patches = pad(patches, (0, 1), value=1.0) * valid[:, :, None, None]
        weight = torch.cat((self.convolution.weight.flatten(1), self.convolution.bias[:, None]), dim=1)
        return (patches @ weight.T).permute(0, 3, 1, 2)


class Stage(nn.Module):
    """A strided convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1)

    def forward(self, images: Tensor, valid: Tensor) -> Tensor:
        """Halve time and bands.

        Args:
            images: [batch, channels, time, bands].
            valid: which of the frames that come out are real, bool [batch, ceil(time / 2)]; the others will be zero.

        Returns:
            [batch, channels, ceil(time / 2), ceil(bands / 2)], whose channels lie innermost if those of the images do.
        """
        halves: Tensor = self.convolution(images)
        return halves.mul_(valid[:, None, :, None])


class SeparableStage(nn.Module):
    """A strided depthwise convolution and a pointwise one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, images: Tensor, valid: Tensor) -> Tensor:
        """Halve time and bands; see ``Stage``."""
        halves: Tensor = self.pointwise(self.depthwise(images))
        return halves.mul_(valid[:, None, :, None])
