"""The peak of a device: how fast it computes a feed-forward product; and how many operations an encoder takes."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import finished, times_of
from models.config import ModelConfig
from models.device.cpu import can_pack, multiplies_eight_bits_exactly, pack, packed_product
from models.device.packed_linear import PackedLinear
from models.device.quantized_linear import QuantizedLinear
from models.network import Network

# Rows of the product, enough to keep the device busy.
_ROWS = {"cpu": 1000, "cuda": 24_000}
_REPEATS = 100


@torch.no_grad()
def peaks(config: ModelConfig, device: torch.device) -> dict[str, dict[str, float]]:
    """Return the operations a second of a product of an encoder's width by four times that, by dtype and library.

    Each is the best of 100 runs. In float32 on a CPU, there are also those of the product with a Swish.
    """
    width = config.encoder.width
    linear = nn.Linear(width, 4 * width, device=device)
    frames = torch.randn(_ROWS[device.type], width, device=device)
    halves = copy.deepcopy(linear).bfloat16()
    forms: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
        "float32": {"torch": linear},
        "bfloat16": {"torch": halves},
    }
    if device.type == "cpu":
        for product in (linear, halves):
            if can_pack(product.weight.dtype):
                forms[str(product.weight.dtype).removeprefix("torch.")]["oneDNN, packed"] = PackedLinear.of(product)
        if can_pack(torch.float32):  # two ways to Swish; `cpu.fuses_swish_well` chooses one by the instruction set
            packed, bias = pack(linear.weight), linear.bias
            forms["float32"] |= {
                "oneDNN, packed, Swish in it": lambda given: packed_product(given, packed, bias, "swish"),
                "oneDNN, packed, Swish behind it": lambda given: silu(
                    packed_product(given, packed, bias), inplace=True
                ),
            }
        if multiplies_eight_bits_exactly():
            forms["int8"] = {"oneDNN, with rounding": QuantizedLinear(linear)}
    found: dict[str, dict[str, float]] = {}
    for dtype, products in forms.items():
        inputs = frames.bfloat16() if dtype == "bfloat16" else frames
        found[dtype] = {name: _operations_a_second(product, inputs) for name, product in products.items()}
    return found


def _operations_a_second(product: Callable[[Tensor], Tensor], frames: Tensor) -> float:
    operations = 2 * frames.size(0) * frames.size(1) * 4 * frames.size(1)
    call = partial(product, frames)
    return operations / min(times_of(lambda: finished(call, frames.device), _REPEATS))


def encoder_operations(config: ModelConfig, seconds: float) -> int:
    """Return the floating-point operations that torch counts in the encoder's products and convolutions for a clip."""
    network = Network.without_weights(config).eval()
    network.fold()
    features = torch.empty(1, config.encoder.mels, int(seconds * config.features.sample_rate) // config.features.hop)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.encoder(features.to("meta"), torch.empty(1, dtype=torch.int64, device="meta"))
    total: int = counter.get_total_flops()
    return total
