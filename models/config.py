"""What a model is, in numbers: everything that its tensors and its vocabulary do not say by themselves.

A checkpoint's own description is translated into these once (models/checkpoint), so nothing else knows how the
publishers of checkpoints spell things.
"""

from dataclasses import dataclass
from typing import Literal

from models.heads.transducer import Activation

Decoder = Literal["ctc", "rnnt", "tdt"]
Subsampling = Literal["striding", "dw_striding"]


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """A log-mel front end.

    Attributes:
        sample_rate: samples per second.
        window: length of the analysis window in samples.
        hop: samples from one frame to the next.
        window_stride: the hop in seconds, as the checkpoint has it.
        fft_size: points of the Fourier transform, even and at least ``window``.
        mels: mel bands, the height of the features.
        low_hz: lower edge of the lowest band.
        high_hz: upper edge of the highest band.
        preemphasis: weight of the previous sample that is subtracted, or None.
        log_offset: added to the mel power before the logarithm.
    """

    sample_rate: int
    window: int
    hop: int
    window_stride: float
    fft_size: int
    mels: int
    low_hz: float
    high_hz: float
    preemphasis: float | None
    log_offset: float


@dataclass(frozen=True, slots=True)
class ConformerConfig:
    """A Conformer (striding) or FastConformer (dw_striding, depthwise separable) encoder.

    Attributes:
        mels: height of the features.
        layers: Conformer layers.
        width: width of a frame.
        heads: attention heads; they divide ``width``.
        feed_forward_width: inner width of the feed-forward modules.
        kernel_size: frames that the convolution module sees, odd.
        subsampling: kind of the convolutions that shorten the features.
        subsampling_factor: features per encoder frame, a power of two.
        subsampling_channels: channels of those convolutions.
        bias: whether the linear and convolution layers of the Conformer layers have biases.
        scale_input: whether frames are multiplied by the square root of ``width`` before the first layer.
    """

    mels: int
    layers: int
    width: int
    heads: int
    feed_forward_width: int
    kernel_size: int
    subsampling: Subsampling
    subsampling_factor: int
    subsampling_channels: int
    bias: bool
    scale_input: bool


@dataclass(frozen=True, slots=True)
class TransducerConfig:
    """The predictor and the joint of an RNN-T, or of a TDT when there are durations.

    Attributes:
        predictor_width: width of the label embedding and of the LSTM.
        predictor_layers: LSTM layers.
        joint_width: width in which frames and predictions meet.
        activation: what follows their sum.
        durations: frames that a TDT may advance by, in the order of its outputs; empty for an RNN-T.
        max_symbols: labels after which search leaves a frame.
    """

    predictor_width: int
    predictor_layers: int
    joint_width: int
    activation: Activation
    durations: tuple[int, ...]
    max_symbols: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A speech recognition model.

    Attributes:
        name: class under which the model was published, such as ``EncDecCTCModelBPE``.
        features: the front end.
        encoder: the encoder.
        vocabulary_size: labels without the blank.
        ctc: whether there is a CTC head.
        transducer: the transducer, if there is one.
    """

    name: str
    features: FeatureConfig
    encoder: ConformerConfig
    vocabulary_size: int
    ctc: bool
    transducer: TransducerConfig | None

    @property
    def decoders(self) -> tuple[Decoder, ...]:
        """The ways to decode, the default first."""
        names: list[Decoder] = []
        if self.transducer:
            names.append("tdt" if self.transducer.durations else "rnnt")
        if self.ctc:
            names.append("ctc")
        return tuple(names)

    def seconds(self, frames: int) -> float:
        """Return where an encoder frame begins, rounded as NeMo does it: hop by hop, then by the subsampling."""
        return frames * self.features.window_stride * self.encoder.subsampling_factor
