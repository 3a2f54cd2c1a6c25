"""Shortening the features before the Conformer layers, by strided convolutions."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, relu_

from models.config import ConformerConfig
from models.device.packed_linear import PackedLinear
from models.encoders.masking import unpadded, valid_positions
from models.kernels import DepthwiseHalves, depthwise_halves_on

# Features that a CPU processes at a time. With more, images are so large that each call allocates them from the
# system; with fewer, there are more calls.
_PIECE = 512


# Zeros before and after the frames, and the bands, of a stage with kernel 3 and stride 2.
_AROUND, _BEFORE = (1, 1), (2, 1)


class Subsampling(nn.Module):
    """Halves time and mel bands in each stage, and projects the result to the encoder's width.

    Each stage sees zeros beyond the end of a clip, so a clip gives the same alone and in any batch.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        channels = config.subsampling_channels
        stages = config.subsampling_factor.bit_length() - 1
        later = SeparableStage if config.subsampling == "dw_striding" else Stage
        self._zeros = _BEFORE if config.causal_subsampling else _AROUND
        first = FirstStage(channels, self._zeros)
        self.stages = nn.ModuleList([first, *(later(channels, self._zeros) for _ in range(1, stages))])
        self._factor, self._channels = config.subsampling_factor, channels
        self._bands = self._size(config.mels)
        self.projection = nn.Linear(channels * self._bands, config.width)
        self._is_folded = False

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten a batch; a CPU processes clip by clip, without padding, so that a clip stays in the caches.

        Args:
            features: [batch, mels, frames]; padding may hold anything.
            lengths: frames of each row, [batch].

        Returns:
            Frames [batch, frames, width], and the frames of each row.
        """
        if features.device.type != "cpu":
            stacked = self._stacked(features, lengths)
        else:
            frames = self._size(features.size(2))
            clips = [self._alone(clip) for clip in unpadded(features, lengths)]
            padded = [pad(clip, (0, 0, 0, frames - clip.size(0))) for clip in clips]
            stacked = torch.stack(padded) if padded else self._stacked(features)
        return self.projection(stacked), self.shortened(lengths)

    def shortened(self, lengths: Tensor) -> Tensor:
        """Return the lengths after subsampling, int64."""
        for _ in self.stages:
            lengths = self._halved(lengths)
        return lengths

    def _halved(self, lengths: Tensor) -> Tensor:
        """Return the lengths after a stage; 0 stays 0."""
        halves = (lengths + self._zeros[0]) // 2
        return halves if self._zeros is _AROUND else halves * (lengths > 0)

    def _size(self, size: int) -> int:
        """Return a number of bands, or of frames with their padding, after all stages."""
        for _ in self.stages:
            size = (size + self._zeros[0]) // 2
        return size

    @torch.no_grad()
    def fold(self) -> None:
        """Prepare inference: reorder the projection's weights for images in channels-last format."""
        weight = self.projection.weight
        by_channel = torch.unflatten(weight, 1, (self._channels, self._bands))
        self.projection.weight = nn.Parameter(by_channel.transpose(1, 2).flatten(1))
        self._is_folded = True

    def pack(self) -> None:
        """Prepare inference on a CPU: pack the weights of the products, which then include ReLU."""
        for stage in self.stages:
            if isinstance(stage, FirstStage | SeparableStage):
                stage.pack()

    def _alone(self, features: Tensor) -> Tensor:
        """Return the projection's input for one clip without padding, ``features`` [mels, frames], in pieces."""
        pieces = [features.new_zeros(0, self._channels * self._bands)]  # for an empty clip
        for begin in range(0, features.size(1), _PIECE):
            # An output frame depends on its own ``factor`` features and on fewer before them; a causal one on the first
            # of its own features, and on less than twice as many before them.
            before = self._factor * self._zeros[0] if begin else 0
            frames = self._stacked(features[None, :, begin - before : begin + _PIECE])[0, before // self._factor :]
            is_last = begin + _PIECE >= features.size(1)
            pieces.append(frames if is_last else frames[: _PIECE // self._factor])
        return torch.cat(pieces)

    def _stacked(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the input of the projection: for each frame, all channels of all bands.

        Args:
            features: [batch, mels, frames].
            lengths: frames of each row; None if there is no padding.
        """
        valid = None
        if lengths is not None:
            features = features.masked_fill(~valid_positions(lengths, features.size(2))[:, None], 0.0)
            kernels = depthwise_halves_on(features.device, features.dtype) if self.may_use_kernels() else None
            if kernels is not None:
                return self._stacked_by(kernels, features, lengths)
        images = features.transpose(1, 2)[:, None]  # [batch, channels, time, mels]
        for stage in self.stages:
            if lengths is not None:
                lengths = self._halved(lengths)
                valid = valid_positions(lengths, (images.size(2) + self._zeros[0]) // 2)
            images = stage(images, valid)
        return (images.permute(0, 2, 3, 1) if self._is_folded else images.transpose(1, 2)).flatten(2)

    def may_use_kernels(self) -> bool:
        """Return whether our kernels can do its work, where they run: if it is folded, separable and not causal."""
        is_separable = len(self.stages) > 1 and isinstance(self.stages[1], SeparableStage)
        return is_separable and self._zeros is _AROUND and self._is_folded and not torch.is_grad_enabled()

    def _stacked_by(self, kernels: DepthwiseHalves, features: Tensor, lengths: Tensor) -> Tensor:
        """Do the same as ``_stacked`` with our kernels, except that padding is not zero."""
        halved_features, halved_images = kernels
        first, *later = self.stages
        assert isinstance(first, FirstStage)
        images: Tensor | None = None  # [batch, time, bands, channels], before ReLU
        for stage in later:
            assert isinstance(stage, SeparableStage)
            assert isinstance(stage.pointwise, nn.Conv2d)  # not packed on a GPU
            depthwise, pointwise = stage.depthwise, stage.pointwise
            lengths = self._halved(lengths)
            if images is None:
                weights = first.convolution.weight, first.convolution.bias, depthwise.weight, depthwise.bias
                halves = halved_features(features, lengths, *weights)
            else:
                halves = halved_images(images, lengths, depthwise.weight, depthwise.bias)
            images = linear(halves, pointwise.weight.flatten(1), pointwise.bias)
        assert images is not None
        return relu_(images).flatten(2)


class FirstStage(nn.Module):
    """The strided convolution of the features as a product, because libraries are slow at a single channel."""

    def __init__(self, channels: int, zeros: tuple[int, int]) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, channels, kernel_size=3, stride=2, padding=_padding(zeros)[0])
        self._zeros = 2 * zeros
        # The packed product; None before ``pack``.
        self.packed: PackedLinear | None = None

    def forward(self, images: Tensor, valid: Tensor | None) -> Tensor:
        """Halve time and bands of ``images`` [batch, 1, time, bands]; see ``Stage``."""
        patches = pad(images[:, 0], self._zeros).unfold(1, 3, 2).unfold(2, 3, 2).flatten(3)
        # A column of ones carries the bias, and padding is zeroed here, so the product needs no second pass.
        patches = pad(patches, (0, 1), value=1.0)
        if valid is not None:
            patches = patches * valid[:, :, None, None]
        halves: Tensor = relu_(patches @ self._weight().T) if self.packed is None else self.packed(patches)
        return halves.permute(0, 3, 1, 2)

    def pack(self) -> None:
        """See ``Subsampling``."""
        self.packed = PackedLinear(self._weight(), None, "relu")

    def _weight(self) -> Tensor:
        """Return the weights of patches and ones, [channels, 10]."""
        assert self.convolution.bias is not None
        return torch.cat((self.convolution.weight.flatten(1), self.convolution.bias[:, None]), dim=1)


class Stage(nn.Module):
    """A strided convolution and ReLU."""

    def __init__(self, channels: int, zeros: tuple[int, int]) -> None:
        super().__init__()
        padding, self._zeros = _padding(zeros)
        self.convolution = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=padding)

    def forward(self, images: Tensor, valid: Tensor | None) -> Tensor:
        """Halve time and bands.

        Args:
            images: [batch, channels, time, bands].
            valid: which frames of the result are real, bool [batch, halves]; the others become zero. None if all are
                real.

        Returns:
            [batch, channels, halves, halves], in the memory format of ``images``.
        """
        return _silenced_relu(self.convolution(_with_zeros(images, self._zeros)), valid)


class SeparableStage(nn.Module):
    """A strided depthwise convolution, a pointwise one and ReLU."""

    def __init__(self, channels: int, zeros: tuple[int, int]) -> None:
        super().__init__()
        padding, self._zeros = _padding(zeros)
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=padding, groups=channels)
        self.pointwise: nn.Conv2d | PackedLinear = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, images: Tensor, valid: Tensor | None) -> Tensor:
        """Halve time and bands; see ``Stage``."""
        halves: Tensor = self.depthwise(_with_zeros(images, self._zeros))
        if not isinstance(self.pointwise, PackedLinear):
            return _silenced_relu(self.pointwise(halves), valid)
        assert valid is None
        product: Tensor = self.pointwise(halves.permute(0, 2, 3, 1))
        return product.permute(0, 3, 1, 2)

    def pack(self) -> None:
        """See ``Subsampling``."""
        self.pointwise = PackedLinear(self.pointwise.weight.flatten(1), self.pointwise.bias, "relu")


def _padding(zeros: tuple[int, int]) -> tuple[int, tuple[int, ...]]:
    """Return the padding that a convolution adds itself, and that of frames and bands which it cannot."""
    return (zeros[0], ()) if zeros == _AROUND else (0, 2 * zeros)


def _with_zeros(images: Tensor, zeros: tuple[int, ...]) -> Tensor:
    return pad(images, zeros) if zeros else images


def _silenced_relu(images: Tensor, valid: Tensor | None) -> Tensor:
    """Apply ReLU to ``images`` [batch, channels, time, bands] in place, and zero the padding."""
    if valid is not None:
        images.mul_(valid[:, None, :, None])
    return relu_(images)
