"""The Conformer (Gulati et al., 2020) and FastConformer (Rekesh et al., 2023) encoder.

``forward`` never reads a value from the device and branches only on shapes, so a CUDA graph can capture it.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, glu, pad, silu

from models.config import ConformerConfig
from models.device.packed_linear import PackedLinear, is_worth_packing
from models.encoders.attention import RelativeAttention, frames_within_reach, relative_positions
from models.encoders.batch_norm import FrameBatchNorm, fold
from models.encoders.padding import Padding
from models.encoders.subsampling import Subsampling
from models.kernels import FRAMES_WORTH_A_KERNEL, gated_convolution_on, residual_norm_on, swish_expansion_on


class ConformerEncoder(nn.Module):
    """Subsampling, then Conformer layers. Padding changes no real frame."""

    def __init__(self, config: ConformerConfig, dropout: float = 0.0) -> None:
        """Build an encoder with random weights.

        Args:
            config: its shape.
            dropout: share of each module's output that training drops before it is added to the frames.
        """
        super().__init__()
        self.config = config
        self.subsampling = Subsampling(config)
        self.layers = nn.ModuleList(ConformerLayer(config, dropout) for _ in range(config.layers))

    def forward(self, features: Tensor, lengths: Tensor, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Encode a batch.

        Args:
            features: [batch, mels, frames], in the dtype of the weights; padding may hold anything.
            lengths: frames of each row, int64 [batch]; 0 is allowed.
            known: ``lengths`` on the host, or None; used to skip padding, unless gradients are wanted. ``lengths`` on
                the host need not be given twice.

        Returns:
            Encoder frames [batch, frames, width], zero in the padding, and the frames of each row: features divided by
            the subsampling factor and rounded up; causal ones may be one more.
        """
        if known is None and lengths.device.type == "cpu":
            known = lengths
        total = None
        if known is not None and not torch.is_grad_enabled():
            total = int(self.shortened(known).sum())
        frames, lengths = self.subsampling(features, lengths)
        if self.config.scale_input:
            frames = frames * math.sqrt(self.config.width)
        positions = self.positions(frames)
        padding = Padding(lengths, frames.size(1), total)
        frames = padding.without(frames)
        for layer in self.layers:
            frames = layer(frames, positions, padding)
        return padding.with_it(frames).masked_fill(~padding.valid[:, :, None], 0.0), lengths

    def shortened(self, lengths: Tensor) -> Tensor:
        """Return the frames of rows of ``lengths`` features, int64 [batch]."""
        return self.subsampling.shortened(lengths)

    def positions(self, frames: Tensor) -> Tensor:
        """Return the sinusoids of all distances within attention's reach, in the frames' dtype."""
        reach = frames_within_reach(frames.size(1), self.config.attention_context)
        return relative_positions(reach, self.config.width, frames.device).to(frames.dtype)


class ConformerLayer(nn.Module):
    """Half a feed-forward step, attention, convolution, the other half, and a norm.

    Each module owns the norm before it, but the layer applies it, together with the sum of the module before.
    """

    def __init__(self, config: ConformerConfig, dropout: float) -> None:
        super().__init__()
        self.first_feed_forward = FeedForward(config)
        self.attention = RelativeAttention(config)
        self.convolution = ConvolutionModule(config)
        self.second_feed_forward = FeedForward(config)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor, positions: Tensor, padding: Padding) -> Tensor:
        """Apply the layer to ``frames`` [batch, time, width], or [1, frames, width] without padding."""
        change = self.dropout(self.first_feed_forward(self.first_feed_forward.norm(frames)))
        frames, normed = added(frames, change, 0.5, self.attention.norm)
        change = self.dropout(self.attention(normed, positions, padding))
        frames, normed = added(frames, change, 1.0, self.convolution.norm)
        change = self.dropout(self.convolution(normed, padding))
        frames, normed = added(frames, change, 1.0, self.second_feed_forward.norm)
        change = self.dropout(self.second_feed_forward(normed))
        return added(frames, change, 0.5, self.norm)[1]


def added(frames: Tensor, change: Tensor, share: float, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Return the sum of frames and ``share`` times a module's output, and the sum after the next norm."""
    kernel = None if torch.is_grad_enabled() else residual_norm_on(frames.device, frames.dtype)
    if kernel is not None:
        return kernel(frames, change, share, norm.weight, norm.bias, norm.eps)
    frames = torch.add(frames, change, alpha=share)
    return frames, norm(frames)


class FeedForward(nn.Module):
    """Norm (applied by the layer), expansion, Swish, contraction."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, config.feed_forward_width, bias=config.bias)
        self.contract = nn.Linear(config.feed_forward_width, config.width, bias=config.bias)
        # Whether the expansion includes Swish.
        self._is_packed = False

    def forward(self, normed: Tensor) -> Tensor:
        """Apply to frames after ``norm``, [..., width]."""
        contracted: Tensor = self.contract(self._expanded(normed))
        return contracted

    def _expanded(self, normed: Tensor) -> Tensor:
        if self._is_packed:
            packed: Tensor = self.expand(normed)
            return packed
        is_large = normed.numel() >= FRAMES_WORTH_A_KERNEL * normed.size(-1)
        if is_large and not torch.is_grad_enabled():
            kernel = swish_expansion_on(normed.device, normed.dtype, self.expand.weight.shape)
            if kernel is not None:
                return kernel(normed, self.expand.weight, self.expand.bias)
        return silu(self.expand(normed), inplace=not torch.is_grad_enabled())

    def pack(self) -> None:
        """Prepare inference on a CPU: the first product includes the activation."""
        if isinstance(self.expand, nn.Linear) and is_worth_packing(self.expand.weight):
            self.expand, self._is_packed = PackedLinear.of(self.expand, "swish"), True  # type: ignore[assignment]


class ConvolutionModule(nn.Module):
    """Norm (applied by the layer), gated linear unit, depthwise convolution over time, second norm, Swish, projection.

    Padding is zeroed before the convolution. Everything else works frame by frame, except the statistics of batch norm
    in training, which leave padding out.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self._left = config.convolution_left
        self.norm = nn.LayerNorm(config.width)
        self.gate = nn.Linear(config.width, 2 * config.width, bias=config.bias)
        self.depthwise = nn.Conv1d(
            config.width,
            config.width,
            kernel_size=config.kernel_size,
            padding=(config.kernel_size - 1) // 2,
            groups=config.width,
            bias=config.bias,
        )
        self.batch_norm: FrameBatchNorm | None = None
        self.layer_norm: nn.LayerNorm | None = None
        if config.convolution_norm == "batch_norm":
            self.batch_norm = FrameBatchNorm(config.width)
        else:
            self.layer_norm = nn.LayerNorm(config.width)
        self.projection = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, normed: Tensor, padding: Padding) -> Tensor:
        """Apply to frames after ``norm``, [batch, time, width], or [1, frames, width] without padding."""
        halves = self.gate(normed)
        is_final = self.batch_norm is None and not torch.is_grad_enabled()
        kernel = gated_convolution_on(halves.device, halves.dtype) if is_final else None
        if kernel is not None:
            weight, bias, swish = self.depthwise.weight, self.depthwise.bias, self.layer_norm is None
            rows = padding.starts, padding.lengths, padding.time
            convolved = kernel(halves, *rows, weight, bias, swish=swish, left=self._left)
            return self._projected(convolved if self.layer_norm is None else silu(self.layer_norm(convolved)))
        convolved = self._convolved(padding.with_it(glu(halves, dim=-1)) * padding.valid[:, :, None])
        if self.batch_norm is not None:
            convolved = self.batch_norm(convolved.transpose(1, 2), padding.valid).transpose(1, 2)
        convolved = padding.without(convolved)
        if self.layer_norm is not None:
            convolved = self.layer_norm(convolved)
        return self._projected(silu(convolved))

    def _projected(self, frames: Tensor) -> Tensor:
        projected: Tensor = self.projection(frames)
        return projected

    def fold(self) -> None:
        """Prepare inference: merge batch norm into the convolution."""
        if self.batch_norm is not None:
            fold(self.depthwise, self.batch_norm)
            self.batch_norm = None

    def _convolved(self, frames: Tensor) -> Tensor:
        """Convolve ``frames`` [batch, time, width] over time, as an image in channels-last format.

        That avoids transposing, which takes longer than the convolution.
        """
        image = frames.transpose(1, 2)[:, :, None]
        kernel = self.depthwise.weight[:, :, None]
        padding = (0, kernel.size(3) // 2)
        if self._left is not None:
            image, padding = pad(image, (self._left, kernel.size(3) - 1 - self._left)), (0, 0)
        convolved = conv2d(image, kernel, self.depthwise.bias, padding=padding, groups=kernel.size(0))
        return convolved[:, :, 0].transpose(1, 2)
