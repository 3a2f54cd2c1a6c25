"""Activation checkpointing (Chen et al., 2016): layers keep what they read, and compute the rest again for gradients.

A step computes the layers forward twice, and keeps the activations of one layer and the inputs of all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from models.encoders.batch_norm import FrameBatchNorm
from models.encoders.conformer import ConformerLayer
from models.heads.attention_decoder import DecoderLayer
from models.network import Network
from training.errors import RecipeError


def recompute_layers(network: Network) -> None:
    """Let the layers of a Conformer and of an attention decoder compute their activations again for gradients.

    Raises:
        RecipeError: if it has no such layers.
    """
    found = False
    for layer in network.modules():
        if isinstance(layer, ConformerLayer):
            layer.forward = _recomputed(layer, layer.forward)  # type: ignore[method-assign]
        elif isinstance(layer, DecoderLayer):
            layer.read = _recomputed(layer, layer.read)  # type: ignore[method-assign]
        found |= isinstance(layer, ConformerLayer | DecoderLayer)
    if not found:
        raise RecipeError("recompute is for the layers of a Conformer or an attention decoder", "recompute")


def _recomputed(layer: nn.Module, compute: Callable[..., Any]) -> Callable[..., Any]:
    norms = [module for module in layer.modules() if isinstance(module, FrameBatchNorm)]
    contexts = lambda: (nullcontext(), _untracked(norms))  # noqa: E731  # what checkpoint calls for each pass
    return partial(checkpoint, compute, use_reentrant=False, context_fn=contexts)


@contextmanager
def _untracked(norms: list[FrameBatchNorm]) -> Iterator[None]:
    """Keep running statistics, which have counted the batch already."""
    for norm in norms:
        norm.tracks = False
    try:
        yield
    finally:
        for norm in norms:
            norm.tracks = True
