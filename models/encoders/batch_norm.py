"""Batch norm over padded batches of clips."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


class FrameBatchNorm(nn.BatchNorm1d):
    """Batch norm (Ioffe and Szegedy, 2015) whose statistics leave out padding.

    In training, what stands in the padding and how much of it there is change nothing for the real frames. The
    statistics of training are float32, whatever autocast says.

    Attributes:
        over_ranks: whether they are those of all the batches that processes which train together have at a time.
    """

    over_ranks = False

    def forward(self, frames: Tensor, valid: Tensor) -> Tensor:  # type: ignore[override]  # it has to know the padding
        """Normalise ``frames`` [batch, width, time], of which ``valid`` [batch, time] are real."""
        if not self.training:
            return super().forward(frames)
        real = valid[:, None].float()
        count = self._summed(real.sum()).clamp(min=1)
        frames = frames.float()
        mean = self._summed((frames * real).sum(dim=(0, 2))) / count
        centered = frames - mean[:, None]
        variance = self._summed((centered.square() * real).sum(dim=(0, 2))) / count
        self._track(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        scale = self.weight * (variance + self.eps).rsqrt()
        return centered * scale[:, None] + self.bias[:, None]

    def _summed(self, value: Tensor) -> Tensor:
        """Return the sum of what every process has, if that is wanted; gradients flow back to all of them."""
        if not self.over_ranks or not dist.is_initialized():
            return value
        from torch.distributed.nn.functional import all_reduce  # takes a while, and is for training alone

        summed: Tensor = all_reduce(value)  # type: ignore[no-untyped-call]  # torch has no types for it
        return summed

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


@torch.no_grad()
def fold(convolution: nn.Conv1d, norm: nn.BatchNorm1d) -> None:
    """Change a convolution so that it gives, in float32, what ``norm`` makes of its output in inference."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.float() * (norm.running_var.float() + norm.eps).rsqrt()
    before = 0.0 if convolution.bias is None else convolution.bias.float()
    convolution.weight = nn.Parameter(convolution.weight.float() * scale[:, None, None])
    convolution.bias = nn.Parameter((before - norm.running_mean.float()) * scale + norm.bias.float())
