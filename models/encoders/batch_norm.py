"""Batch norm over padded batches of clips."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


class FrameBatchNorm(nn.BatchNorm1d):
    """Batch norm (Ioffe and Szegedy, 2015) whose statistics leave out padding.

    So in training, padding changes nothing for the real frames. The statistics of training are float32, also under
    autocast.

    Attributes:
        over_ranks: whether the statistics are those of the batches of all training processes together.
        is_silence: whether the frames are of silence in place of clips, which no statistics count.
        tracks: whether the running statistics follow those of batches; not while a batch is computed again.
    """

    over_ranks = False
    is_silence = False
    tracks = True

    def forward(self, frames: Tensor, valid: Tensor) -> Tensor:  # type: ignore[override]  # takes the padding too
        """Normalise ``frames`` [batch, width, time], of which ``valid`` [batch, time] are real."""
        if not self.training:
            return super().forward(frames)
        assert self.running_mean is not None
        assert self.running_var is not None
        real = (valid & (not self.is_silence))[:, None]
        counted = self._summed(real.sum().float())
        count = counted.clamp(min=1)
        # Filled, because times 0 a number that has overflowed would be NaN.
        frames = frames.float().masked_fill(~valid[:, None], 0.0)
        # Without a frame that counts, the running statistics: they are finite, and tracking them changes nothing.
        mean = self._summed(frames.masked_fill(~real, 0.0).sum(dim=(0, 2))) / count
        mean = mean.where(counted > 0, self.running_mean.float())
        centered = frames - mean[:, None]
        variance = self._summed(centered.masked_fill(~real, 0.0).square().sum(dim=(0, 2))) / count
        variance = variance.where(counted > 0, self.running_var.float())
        if self.tracks:
            self._track(counted, mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        scale = self.weight * (variance + self.eps).rsqrt()
        return centered * scale[:, None] + self.bias[:, None]

    def _summed(self, value: Tensor) -> Tensor:
        """Return the sum over all processes if ``over_ranks``, else ``value``; gradients flow back to all of them."""
        if not self.over_ranks or not dist.is_initialized():
            return value
        from torch.distributed.nn.functional import all_reduce  # slow to import, and only for training

        summed: Tensor = all_reduce(value)  # type: ignore[no-untyped-call]  # torch has no types for it
        return summed

    @torch.no_grad()
    def _track(self, counted: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch; ``counted``: the number of its frames that count."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(counted > 0)


@torch.no_grad()
def fold(convolution: nn.Conv1d, norm: nn.BatchNorm1d) -> None:
    """Merge ``norm``, as it is in inference, into the weights of a convolution, in float32."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.float() * (norm.running_var.float() + norm.eps).rsqrt()
    before = 0.0 if convolution.bias is None else convolution.bias.float()
    convolution.weight = nn.Parameter(convolution.weight.float() * scale[:, None, None])
    convolution.bias = nn.Parameter((before - norm.running_mean.float()) * scale + norm.bias.float())
