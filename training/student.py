"""The model that is trained: a FastConformer with a CTC head, and the front end of NVIDIA's released models."""

import torch
from torch import Tensor

from models.config import ConformerConfig, FeatureConfig, ModelConfig
from models.encoders.subsampling import Subsampling
from models.network import Network
from training.recipe import Student

FRONT_END = FeatureConfig(
    sample_rate=16_000,
    window=400,
    hop=160,
    window_stride=0.01,
    fft_size=512,
    mels=80,
    low_hz=0.0,
    high_hz=8000.0,
    preemphasis=0.97,
    log_offset=2**-24,
)


def student_config(student: Student, vocabulary_size: int) -> ModelConfig:
    """Return what the student is, in the words of models/."""
    encoder = ConformerConfig(
        mels=FRONT_END.mels,
        layers=student.layers,
        width=student.width,
        heads=student.heads,
        feed_forward_width=student.feed_forward_factor * student.width,
        kernel_size=student.kernel_size,
        subsampling="dw_striding",
        subsampling_factor=student.subsampling_factor,
        subsampling_channels=student.subsampling_channels,
        bias=True,
        scale_input=False,
    )
    return ModelConfig("EncDecCTCModelBPE", FRONT_END, encoder, vocabulary_size, ctc=True, transducer=None)


class Float32Subsampling(Subsampling):
    """Subsampling that autocast leaves alone.

    On a CPU, the gradient of a depthwise convolution takes three times as long in bf16 as in float32.
    """

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten a batch, as ``Subsampling`` does."""
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float(), lengths)


def new_network(config: ModelConfig, dropout: float, seed: int) -> Network:
    """Return a network with random weights, PyTorch's own, the same for the same seed; nothing else draws from it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(config, dropout)
        network.encoder.subsampling = Float32Subsampling(config.encoder)
        return network
