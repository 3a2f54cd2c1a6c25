"""What the processor can do: the fastest products of the shape that an encoder has most of, and how many it needs."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import times_of
from models.config import ModelConfig
from models.network import Network
from models.packed_linear import PackedLinear

_ROWS = 1000
_REPEATS = 100


@torch.no_grad()
def peaks(config: ModelConfig) -> dict[str, float]:
    """Return the FLOP/s of the feed-forward product of 1000 frames in float32, best of 100: through MKL and oneDNN."""
    encoder = config.encoder
    linear = nn.Linear(encoder.width, 4 * encoder.width)
    frames = torch.randn(_ROWS, encoder.width)
    operations = 2 * _ROWS * linear.weight.numel()
    products = {"torch": linear, "oneDNN, packed": PackedLinear.of(linear)}
    return {name: operations / min(times_of(lambda: product(frames), _REPEATS)) for name, product in products.items()}  # noqa: B023  # called at once


def encoder_operations(config: ModelConfig, seconds: float) -> int:
    """Return the floating-point operations of the encoder's products and convolutions for one clip, as torch counts."""
    network = Network.without_weights(config).eval()
    features = torch.empty(1, config.encoder.mels, int(seconds * config.features.sample_rate) // config.features.hop)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.encoder(features.to("meta"), torch.empty(1, dtype=torch.int64, device="meta"))
    total: int = counter.get_total_flops()
    return total
