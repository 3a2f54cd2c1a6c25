"""The states between the modules of a Conformer layer, which its own ``forward`` does not show."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from models.encoders.conformer import ConformerEncoder, ConformerLayer
from models.encoders.padding import Padding


@dataclass(frozen=True, slots=True)
class LayerStates:
    """The states of a layer, each [batch, time, width]."""

    # What enters each module: the first feed-forward, attention, the convolution, the second feed-forward.
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]  # what each module returns, before it is added to its input
    sum: Tensor  # what enters the closing norm
    output: Tensor  # what leaves it

    def float(self) -> "LayerStates":
        """Return the same in float32."""
        inputs, outputs = (tuple(one.float() for one in states) for states in (self.inputs, self.outputs))
        return LayerStates(inputs, outputs, self.sum.float(), self.output.float())


def input_frames(encoder: ConformerEncoder, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what enters an encoder's first layer, [batch, frames, width], the frames of each row, and positions."""
    frames, lengths = encoder.subsampling(features, lengths)
    if encoder.config.scale_input:
        frames = frames * math.sqrt(encoder.config.width)
    return frames, lengths, encoder.positions(frames)


def module_outputs(
    layer: ConformerLayer, inputs: tuple[Tensor, ...], positions: Tensor, padding: Padding
) -> tuple[Tensor, ...]:
    """Return what each module of a layer makes of an input of its own, as in ``LayerStates``."""
    modules = _modules(layer, positions, padding)
    return tuple(module(one) for module, one in zip(modules, inputs, strict=True))


def layer_states(layer: ConformerLayer, frames: Tensor, positions: Tensor, padding: Padding) -> LayerStates:
    """Return the states of a layer for ``frames`` [batch, time, width]."""
    inputs, outputs = [frames], list[Tensor]()
    for module, share in zip(_modules(layer, positions, padding), (0.5, 1.0, 1.0, 0.5), strict=True):
        outputs.append(module(inputs[-1]))
        inputs.append(torch.add(inputs[-1], outputs[-1], alpha=share))
    return LayerStates(tuple(inputs[:-1]), tuple(outputs), inputs[-1], layer.norm(inputs[-1]))


def _modules(layer: ConformerLayer, positions: Tensor, padding: Padding) -> list[Callable[[Tensor], Tensor]]:
    """Return the modules of a layer, each with the norm before it."""
    first, attention, convolution, second = (
        layer.first_feed_forward,
        layer.attention,
        layer.convolution,
        layer.second_feed_forward,
    )
    return [
        lambda frames: first(first.norm(frames)),
        lambda frames: attention(attention.norm(frames), positions, padding),
        lambda frames: convolution(convolution.norm(frames), padding),
        lambda frames: second(second.norm(frames)),
    ]
