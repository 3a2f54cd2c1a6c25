"""Encoders of convolutions only: Jasper, QuartzNet, Citrinet.

Jasper (Li et al., 2019, arXiv 1904.03288) joins blocks of convolutions by dense residuals. QuartzNet (Kriman et al.,
2019, arXiv 1910.10261) makes the convolutions separable, and Citrinet (Majumdar et al., 2021, arXiv 2104.01721) adds
squeeze-and-excitation. Arithmetic and order of the modules are those of NeMo's ConvASREncoder.

``forward`` never reads a value from the device and branches only on shapes, so a CUDA graph can capture it.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.functional import relu, silu

from models.config import BlockConfig, ConvolutionActivation, JasperConfig
from models.encoders.batch_norm import FrameBatchNorm, fold
from models.encoders.masking import valid_positions

_ACTIVATIONS: dict[ConvolutionActivation, Callable[[Tensor], Tensor]] = {"relu": relu, "swish": silu}
_BATCH_NORM_EPS = 1e-3

T = TypeVar("T")


class JasperEncoder(nn.Module):
    """Blocks of convolutions over time. Padding changes no real frame."""

    def __init__(self, config: JasperConfig, dropout: float = 0.0) -> None:
        """Build an encoder with random weights.

        Args:
            config: its shape.
            dropout: share of each activation that training drops.
        """
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList()
        widths = [config.mels]
        for block in config.blocks:
            self.blocks.append(Block(block, widths, _ACTIVATIONS[config.activation], dropout))
            widths = _kept(block, widths, block.filters)

    def forward(
        self,
        features: Tensor,
        lengths: Tensor,
        known: Tensor | None = None,  # noqa: ARG002  # convolutions need the padding
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch.

        Args:
            features: [batch, mels, frames], in the dtype of the weights; padding may hold anything.
            lengths: frames of each row, [batch]; 0 is allowed, and stays 0.
            known: not used.

        Returns:
            Encoder frames [batch, ceil(frames / subsampling factor), width], zero in the padding, and the frames of
            each row.
        """
        inputs = [features]
        valid = valid_positions(lengths, features.size(2))
        for block, config in zip(self.blocks, self.config.blocks, strict=True):
            frames, valid = block(inputs, valid)
            inputs = _kept(config, inputs, frames)
        return inputs[-1].masked_fill(~valid[:, None], 0.0).transpose(1, 2), self.shortened(lengths)

    def shortened(self, lengths: Tensor) -> Tensor:
        """Return the frames of rows of ``lengths`` features, [batch]."""
        factor = self.config.subsampling_factor
        return (lengths + factor - 1) // factor


def _kept(block: BlockConfig, inputs: Sequence[T], output: T) -> list[T]:
    """Return the inputs of the block after this one: those of dense blocks, then ``output``."""
    return [*inputs, output] if block.dense else [output]


class Block(nn.Module):
    """Convolutions one after the other, and residuals: 1x1 convolutions of the inputs, added to the output."""

    def __init__(
        self, config: BlockConfig, widths: Sequence[int], activation: Callable[[Tensor], Tensor], dropout: float
    ) -> None:
        """Build a block for inputs of ``widths``, the last of which goes through the convolutions."""
        super().__init__()
        self.stride = config.stride
        self.activation = activation
        joining = widths if config.dense else widths[-1:]
        last = config.repeat - 1
        self.sub_blocks = nn.ModuleList(
            SubBlock(config, config.filters if index else widths[-1], config.stride if index == last else 1)
            for index in range(config.repeat)
        )
        self.squeeze = SqueezeExcitation(config, activation) if config.squeeze_width else None
        self.shortcuts = nn.ModuleList(Shortcut(config, width) for width in joining if config.residual)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Sequence[Tensor], valid: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the block.

        Args:
            inputs: [batch, width, time] each; the last one is the output of the block before.
            valid: which frames are real, [batch, time].

        Returns:
            [batch, filters, ceil(time / stride)], and which frames of it are real.
        """
        frames = inputs[-1]
        for index, sub_block in enumerate(self.sub_blocks):
            if index:
                frames = self.dropout(self.activation(frames))
            frames = sub_block(frames, valid)
        valid = valid[:, :: self.stride]
        if self.squeeze is not None:
            frames = self.squeeze(frames, valid)
        sources = inputs[len(inputs) - len(self.shortcuts) :]
        for source, shortcut in zip(sources, self.shortcuts, strict=True):
            frames = frames + shortcut(source, valid)
        return self.dropout(self.activation(frames)), valid


class SubBlock(nn.Module):
    """A convolution over time, separable or not, and batch norm.

    Padding is zeroed first. What follows the first convolution works frame by frame, except the statistics of batch
    norm in training, which leave padding out.
    """

    def __init__(self, config: BlockConfig, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.depthwise: nn.Conv1d | None = None
        if config.separable:
            self.depthwise = _over_time(config, width, width, stride, width)
            self.convolution = nn.Conv1d(width, config.filters, kernel_size=1, bias=False)
        else:
            self.convolution = _over_time(config, width, config.filters, stride)
        self.batch_norm: FrameBatchNorm | None = FrameBatchNorm(config.filters, eps=_BATCH_NORM_EPS)

    def forward(self, frames: Tensor, valid: Tensor) -> Tensor:
        """Apply to ``frames`` [batch, width, time], of which ``valid`` [batch, time] are real."""
        frames = frames.masked_fill(~valid[:, None], 0.0)
        if self.depthwise is not None:
            frames = self.depthwise(frames)
        frames = self.convolution(frames)
        if self.batch_norm is not None:
            frames = self.batch_norm(frames, valid[:, :: self.stride])
        return frames

    def fold(self) -> None:
        """For inference, let the convolution do the work of batch norm."""
        if self.batch_norm is not None:
            fold(self.convolution, self.batch_norm)
            self.batch_norm = None


def _over_time(config: BlockConfig, width_in: int, width: int, stride: int, groups: int = 1) -> nn.Conv1d:
    return nn.Conv1d(
        width_in,
        width,
        config.kernel_size,
        stride,
        padding=config.dilation * (config.kernel_size // 2),
        dilation=config.dilation,
        groups=groups,
        bias=False,
    )


class Shortcut(nn.Module):
    """A residual connection: a 1x1 convolution and batch norm."""

    def __init__(self, config: BlockConfig, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, config.filters, kernel_size=1, stride=config.stride, bias=False)
        self.batch_norm: FrameBatchNorm | None = FrameBatchNorm(config.filters, eps=_BATCH_NORM_EPS)

    def forward(self, frames: Tensor, valid: Tensor) -> Tensor:
        """Apply to ``frames`` [batch, width, time]; ``valid`` [batch, ceil(time / stride)] is that of the result."""
        joining: Tensor = self.convolution(frames)
        return joining if self.batch_norm is None else self.batch_norm(joining, valid)

    def fold(self) -> None:
        """For inference, let the convolution do the work of batch norm."""
        if self.batch_norm is not None:
            fold(self.convolution, self.batch_norm)
            self.batch_norm = None


class SqueezeExcitation(nn.Module):
    """Scales channels by weights computed from the whole clip (Hu et al., 2018, arXiv 1709.01507)."""

    def __init__(self, config: BlockConfig, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        assert config.squeeze_width
        self.activation = activation
        self.contract = nn.Linear(config.filters, config.squeeze_width, bias=False)
        self.expand = nn.Linear(config.squeeze_width, config.filters, bias=False)

    def forward(self, frames: Tensor, valid: Tensor) -> Tensor:
        """Scale the channels of ``frames`` [batch, width, time]; ``valid`` [batch, time] says which frames are real."""
        count = valid.sum(dim=1, keepdim=True).clamp(min=1)
        mean = frames.masked_fill(~valid[:, None], 0.0).sum(dim=2) / count
        weights: Tensor = self.expand(self.activation(self.contract(mean))).sigmoid()
        return frames * weights[:, :, None]
