"""Models of published shapes with random weights that find about as many labels as a trained model.

A model's cost follows from its shape, except that the time of a search depends on the number of labels. So the blank of
each head gets the bias with which a second of noise has four labels, the rate of English. Unlike a trained transducer,
a random one would repeat its label at the same frame. So labels of the TDT advance by at least one frame, and the RNN-T
emits at most one label in a frame, without scoring the blank that would follow.
"""

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.checkpoint import Checkpoint
from models.config import BlockConfig, ConformerConfig, EncoderConfig, JasperConfig, ModelConfig, TransducerConfig
from models.features import LogMelFeatures
from models.network import Network
from models.search.ctc import ctc_greedy
from models.search.look_ahead import look_ahead
from models.search.result import SearchResult
from models.text.tokenizers import CharacterTokenizer
from training.student import FRONT_END

_CONFORMER = ConformerConfig(
    mels=80,
    layers=17,
    width=512,
    heads=8,
    feed_forward_width=2048,
    kernel_size=9,
    subsampling="dw_striding",
    subsampling_factor=8,
    subsampling_channels=256,
    bias=True,
    scale_input=False,
)
_LARGE = dataclasses.replace(_CONFORMER, layers=24, width=1024, feed_forward_width=4096, mels=128, bias=False)
_JASPER_BLOCKS = ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25))
# The encoders of parakeet-tdt_ctc-110m, parakeet-tdt-0.6b-v2 and parakeet-tdt-1.1b, and one for rehearsals.
ENCODERS = {
    "toy": dataclasses.replace(
        _CONFORMER, layers=2, width=64, heads=4, feed_forward_width=128, subsampling_channels=16
    ),
    "110m": _CONFORMER,
    "0.6b": _LARGE,
    "1.1b": dataclasses.replace(_LARGE, layers=42, mels=80, bias=True),
}


def _block(filters: int, kernel_size: int, repeat: int = 1, stride: int = 1, dilation: int = 1) -> BlockConfig:
    inner = repeat > 1
    return BlockConfig(filters, repeat, kernel_size, stride, dilation, False, inner, inner, None)


# Jasper 10x5 with dense residuals (Li et al., 2019): one convolution, ten blocks of five, two convolutions.
JASPER = JasperConfig(
    mels=64,
    blocks=(
        _block(256, 11, stride=2),
        *(_block(width, kernel, 5) for width, kernel in _JASPER_BLOCKS for _ in range(2)),
        _block(896, 29, dilation=2),
        _block(1024, 1),
    ),
    activation="relu",
)
SHAPES: dict[str, EncoderConfig] = {**ENCODERS, "jasper10x5dr": JASPER}
_LETTERS = " abcdefghijklmnopqrstuvwxyz'"
_PREDICTOR_LAYERS = {"toy": 1, "110m": 1, "0.6b": 2, "1.1b": 2}
DURATIONS = {"rnnt": (), "tdt": (0, 1, 2, 3, 4)}
LABELS = 1024
_LABELS_PER_SECOND = 4
_CLIPS, _SECONDS = 4, 17
# Scales the predictor's part of the joint, so that labels depend mostly on the frames.
_PREDICTOR_SHARE = 0.1
_NEVER = -100.0
# Bisections of the interval of the blank's bias.
_HALVINGS = 16
_WIDEST_BIAS = 64.0


def random_checkpoint(shape: str, transducer: str, device: str = "cpu") -> Checkpoint:
    """Return a hybrid of a CTC head and a transducer, in float32 on the CPU; a Jasper has its CTC head only.

    Args:
        shape: one of ``SHAPES``.
        transducer: "rnnt" or "tdt".
        device: the device for calibrating its heads, which takes seconds on a GPU.
    """
    config = published_config(shape, transducer)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        network = Network(config).eval()
        _settle_batch_norms(network)
        network.to(device)
        waveforms = 0.1 * torch.randn(_CLIPS, _SECONDS * config.features.sample_rate).to(device)
        samples = torch.full((len(waveforms),), waveforms.size(1), device=device)
        encoded, frames = network.encoder(*LogMelFeatures(config.features).to(device)(waveforms, samples))
        _prepare_ctc(network, encoded, frames)
        if config.transducer:
            _prepare_transducer(network, encoded, frames, config.transducer)
    labels = ["".join(letters) for letters in itertools.product("abcdefgh", "aeio", "lmnprstv", " aei")]
    state = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    labels = labels if config.transducer else list(_LETTERS)
    return Checkpoint(config, CharacterTokenizer(labels), state, window=None, mel_bank=None)


def published_config(shape: str, transducer: str) -> ModelConfig:
    """Return the configuration of one of ``SHAPES``; a FastConformer has a CTC head and this transducer."""
    return _jasper_config() if shape == "jasper10x5dr" else _config(shape, transducer)


def _jasper_config() -> ModelConfig:
    features = dataclasses.replace(FRONT_END, mels=JASPER.mels, window=320)
    return ModelConfig("EncDecCTCModel", features, JASPER, len(_LETTERS), ctc=True, transducer=None)


def _config(shape: str, transducer: str) -> ModelConfig:
    small = shape == "toy"
    return ModelConfig(
        name="EncDecHybridRNNTCTCModel",
        features=dataclasses.replace(FRONT_END, mels=ENCODERS[shape].mels),
        encoder=ENCODERS[shape],
        vocabulary_size=LABELS,
        ctc=True,
        transducer=TransducerConfig(
            predictor_width=64 if small else 640,
            predictor_layers=_PREDICTOR_LAYERS[shape],
            joint_width=64 if small else 640,
            durations=DURATIONS[transducer],
            max_symbols=10 if DURATIONS[transducer] else 1,
        ),
    )


def _settle_batch_norms(network: Network) -> None:
    """Give batch norms random statistics, because fresh ones change nothing."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)


def _prepare_ctc(network: Network, encoded: Tensor, frames: Tensor) -> None:
    ctc = network.ctc
    assert ctc
    _even_out(ctc.projection, encoded)
    _weigh(ctc.projection.bias, ctc.blank, lambda: ctc_greedy(ctc(encoded), frames, ctc.blank))


def _prepare_transducer(network: Network, encoded: Tensor, frames: Tensor, config: TransducerConfig) -> None:
    predictor, joint = network.predictor, network.joint
    assert predictor
    assert joint
    joint.predictor_projection.weight.mul_(_PREDICTOR_SHARE)
    start, _ = predictor(torch.full_like(frames, predictor.blank), predictor.initial_state(len(frames)))
    hidden = joint.activation(joint.encoder_projection(encoded) + joint.predictor_projection(start)[:, None])
    _even_out(joint.output, hidden)
    if 0 in joint.durations:
        joint.output.bias[joint.blank + 1 + joint.durations.index(0)] = _NEVER
    _weigh(
        joint.output.bias,
        joint.blank,
        lambda: look_ahead(encoded, frames, predictor, joint, config.max_symbols),
    )


def _even_out(layer: nn.Linear, inputs: Tensor) -> None:
    """Normalise each output of a layer to mean 0 and equal variance."""
    outputs = layer(inputs).flatten(0, 1)
    deviation = outputs.std(dim=0).clamp(min=1e-6)
    layer.weight.div_(deviation[:, None])
    layer.bias.copy_((layer.bias - outputs.mean(dim=0)) / deviation)


def _weigh(bias: Tensor, blank: int, search: Callable[[], SearchResult]) -> None:
    """Find the blank's bias for the wanted number of labels by bisection: more bias, fewer labels."""
    low = float(bias[blank])
    high = low + _WIDEST_BIAS
    for _ in range(_HALVINGS):
        bias[blank] = (low + high) / 2
        if int(search().counts.sum()) > _LABELS_PER_SECOND * _CLIPS * _SECONDS:
            low = float(bias[blank])
        else:
            high = float(bias[blank])
