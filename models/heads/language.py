"""The head of a language identifier: it pools the frames of a clip into one vector, and scores the languages.

Arithmetic as in NeMo's SpeakerDecoder: x-vectors pool mean and deviation (Snyder et al., 2018), ECAPA weights both by
attention (Desplanques et al., 2020, arXiv 2005.07143).
"""

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from models.config import IdentifierConfig
from models.encoders.masking import valid_positions

# A smaller variance counts as this.
_LEAST_VARIANCE = 1e-10


class LanguageHead(nn.Module):
    """Pools encoder frames, in float32, and scores the labels. Padding changes nothing."""

    def __init__(self, config: IdentifierConfig) -> None:
        """Build a head with random weights."""
        super().__init__()
        width = config.encoder.width
        self.attention = FrameAttention(width, config.attention_width) if config.pooling == "attention" else None
        widths = [2 * width, *config.embedding_widths]
        behind_norm = self.attention is not None
        self.embeddings = nn.Sequential(*(_embedding(*pair, behind_norm=behind_norm) for pair in pairwise(widths)))
        self.output = nn.Linear(widths[-1], len(config.labels))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores of the labels, [batch, labels], float32.

        Args:
            frames: encoder frames [batch, frames, width]; padding may hold anything.
            lengths: frames of each row, [batch]; a row without any counts as one of zeros.
        """
        valid = valid_positions(lengths, frames.size(1))[:, :, None]
        frames = frames.float().masked_fill(~valid, 0.0)
        scores: Tensor = self.output(self.embeddings(self._pooled(frames, valid)))
        return scores

    def _pooled(self, frames: Tensor, valid: Tensor) -> Tensor:
        count = valid.sum(dim=1).clamp(min=1)
        mean = frames.sum(dim=1) / count
        squares = (frames - mean[:, None]).masked_fill(~valid, 0.0).square().sum(dim=1)
        if self.attention is None:
            return torch.cat([mean, _deviation(squares / (count - 1).clamp(min=1))], dim=1)
        weights = self.attention(frames, mean, _deviation(squares / count), valid)
        mean = (weights * frames).sum(dim=1)
        return torch.cat([mean, _deviation((weights * (frames - mean[:, None]).square()).sum(dim=1))], dim=1)


def _deviation(variance: Tensor) -> Tensor:
    return variance.clamp(min=_LEAST_VARIANCE).sqrt()


class FrameAttention(nn.Module):
    """Weights frames, in each channel by itself, by what they hold and by the mean and deviation of their clip."""

    def __init__(self, width: int, inner_width: int) -> None:
        super().__init__()
        self.context = nn.Linear(3 * width, inner_width)
        self.norm = nn.BatchNorm1d(inner_width)
        self.weight = nn.Linear(inner_width, width)

    def forward(self, frames: Tensor, mean: Tensor, deviation: Tensor, valid: Tensor) -> Tensor:
        """Return weights [batch, frames, width], whose sum over the frames is 1.

        Args:
            frames: [batch, frames, width].
            mean: of each channel, [batch, width].
            deviation: of each channel, [batch, width].
            valid: which frames are real, [batch, frames, 1].
        """
        clip = torch.cat([mean, deviation], dim=1)[:, None].expand(-1, frames.size(1), -1)
        inner = self.context(torch.cat([frames, clip], dim=2)).relu()
        scores: Tensor = self.weight(self.norm(inner.transpose(1, 2)).transpose(1, 2).tanh())
        # A finite number, so that a row without frames has weights too.
        return scores.masked_fill(~valid, torch.finfo(scores.dtype).min).softmax(dim=1)


def _embedding(width_in: int, width: int, *, behind_norm: bool) -> nn.Sequential:
    """Return batch norm and a linear layer, or a linear layer, batch norm without weights, and ReLU."""
    linear = nn.Linear(width_in, width)
    if behind_norm:
        return nn.Sequential(OrderedDict(norm=nn.BatchNorm1d(width_in), linear=linear))
    return nn.Sequential(OrderedDict(linear=linear, norm=nn.BatchNorm1d(width, affine=False), relu=nn.ReLU()))
