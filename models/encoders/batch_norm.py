"""Batch norm over padded batches of clips."""

import torch
from torch import Tensor, nn


class FrameBatchNorm(nn.BatchNorm1d):
    """Batch norm (Ioffe and Szegedy, 2015) whose statistics leave out padding.

    In training, what stands in the padding and how much of it there is change nothing for the real frames. The
    statistics of training are float32, whatever autocast says.
    """

    def forward(self, frames: Tensor, valid: Tensor) -> Tensor:  # type: ignore[override]  # it has to know the padding
        """Normalise ``frames`` [batch, width, time], of which ``valid`` [batch, time] are real."""
        if not self.training:
            return super().forward(frames)
        real = valid[:, None].float()
        count = real.sum().clamp(min=1)
        frames = frames.float()
        mean = (frames * real).sum(dim=(0, 2)) / count
        centered = frames - mean[:, None]
        variance = (centered.square() * real).sum(dim=(0, 2)) / count
        self._track(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        scale = self.weight * (variance + self.eps).rsqrt()
        return centered * scale[:, None] + self.bias[:, None]

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
