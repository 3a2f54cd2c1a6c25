"""The products whose results are compared: scores of labels and tokens."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

_ROUNDED = (torch.bfloat16, torch.float16)


def product_of_scores(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return ``linear(inputs, weight, bias)``, in inference on a GPU as the float32 sums, not rounded to the dtype.

    Rounded to bfloat16, scores that differ by less than 1 % are equal, and the lowest index wins. Kernels compare the
    sums themselves (models/search/fused_joint.py), so without this the tokens would depend on whether kernels run. A
    CPU has no kernels, and no product with results of another dtype: its scores are in the dtype of the weights.

    Args:
        inputs: [..., width].
        weight: [outputs, width].
        bias: [outputs].
    """
    if not inputs.is_cuda or torch.is_grad_enabled() or weight.dtype not in _ROUNDED:
        return linear(inputs, weight, bias)
    scores = torch.mm(inputs.flatten(0, -2), weight.T, out_dtype=torch.float32).add_(bias)
    return scores.view(*inputs.shape[:-1], weight.size(0))


def scores_of(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Apply an output layer as ``product_of_scores`` does, or as it is if it was packed for a CPU."""
    if isinstance(layer, nn.Linear) and not torch.is_grad_enabled():
        return product_of_scores(inputs, layer.weight, layer.bias)
    scores: Tensor = layer(inputs)
    return scores
