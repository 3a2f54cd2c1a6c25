"""AdamW (Loshchilov and Hutter, 2019), which decays matrices only."""

from torch import nn
from torch.optim import AdamW

from training.recipe import Optimizer


def new_optimizer(network: nn.Module, config: Optimizer) -> AdamW:
    """Return an optimizer of the network's weights; its learning rate is set at every step.

    Norms and biases, those of the attention too, are not decayed: nothing is gained by pulling them to zero.
    """
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        (kept if parameter.dim() == 1 or name.endswith("bias") else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return AdamW(groups, lr=config.peak, betas=config.betas, fused=True)
