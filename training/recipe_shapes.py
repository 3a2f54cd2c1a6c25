"""The shapes of models that a recipe may ask for, in frozen dataclasses; see training/recipe.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training.recipe_bounds import within


@dataclass(frozen=True, slots=True, kw_only=True)
class Transducer:
    """Shape of a predictor and a joint beside the CTC head.

    Attributes:
        predictor_width: width of the label embedding and the LSTM.
        predictor_layers: layers of the LSTM.
        joint_width: width of the sum of frames and predictions.
        durations: frames that a token-and-duration transducer (TDT; Xu et al., 2023) may pass over, ascending; null
            for an RNN-T (Graves, 2012).
    """

    predictor_width: int = within(1, 4096)
    predictor_layers: int = within(1, 16, default=1)
    joint_width: int = within(1, 4096)
    durations: tuple[int, ...] | None = within(0, 64, default=(0, 1, 2, 3, 4))

    def __post_init__(self) -> None:
        durations = self.durations or (1,)
        if list(durations) != sorted(set(durations)) or not durations[-1]:
            raise ValueError(f"durations {list(durations)} must ascend and end above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Shape of an attention decoder, Canary's (Puvvada et al., 2024, arXiv 2406.19674).

    Attributes:
        width: width of a token; encoder frames of another width are projected to it.
        layers: layers of self-attention, cross-attention and feed-forward.
        heads: attention heads; they divide ``width``.
        feed_forward_factor: inner width of the feed-forward modules in widths.
        positions: the longest sequence, prompt and text together; longer transcripts are left out.
    """

    width: int = within(2, 4096)
    layers: int = within(1, 100)
    heads: int = within(1, 256)
    feed_forward_factor: int = within(1, 16, default=4)
    positions: int = within(32, 2**14, default=512)

    def __post_init__(self) -> None:
        if self.width % 2 or self.width % self.heads:
            raise ValueError(f"width {self.width} must be an even multiple of heads, {self.heads}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a convolutional encoder: convolutions over time, each with batch norm, and a residual around them.

    Attributes:
        filters: channels of its output.
        kernel_size: frames that a convolution sees, odd.
        repeat: convolutions one after the other.
        stride: stride of the last of them.
        dilation: distance of the frames that a convolution sees.
        separable: whether each convolution is a depthwise and a pointwise one (QuartzNet), or a full one (Jasper).
        residual: whether the block's input joins its output.
        dense: whether the inputs of all dense blocks right before it join too (Jasper's dense residual).
        squeeze_ratio: ``filters`` divided by the inner width of squeeze-and-excitation (Citrinet); null for none.
    """

    filters: int = within(1, 2**14)
    kernel_size: int = within(1, 1023)
    repeat: int = within(1, 32, default=1)
    stride: int = within(1, 64, default=1)
    dilation: int = within(1, 64, default=1)
    separable: bool = True
    residual: bool = True
    dense: bool = False
    squeeze_ratio: int | None = within(1, 2**14, default=None)

    def __post_init__(self) -> None:
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        if self.squeeze_ratio and self.squeeze_ratio > self.filters:
            raise ValueError(f"squeeze_ratio {self.squeeze_ratio} must be at most filters, {self.filters}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutional:
    """Shape of a Jasper (Li et al., 2019), a QuartzNet or a Citrinet with CTC.

    Attributes:
        blocks: its blocks in order.
        activation: what follows each convolution.
        mels: height of the features.
    """

    blocks: tuple[Block, ...]
    activation: Literal["relu", "swish"] = "relu"
    mels: int = within(1, 256, default=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language of an attention decoder.

    Attributes:
        code: two letters of ISO 639-1.
        vocabulary: a SentencePiece model of its text.
    """

    code: str
    vocabulary: Path

    def __post_init__(self) -> None:
        if not (len(self.code) == 2 and self.code.isascii() and self.code.islower()):
            raise ValueError(f"code {self.code!r} must be two letters, such as en")


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """Shape of the FastConformer that is trained (Rekesh et al., 2023).

    Attributes:
        layers: Conformer layers.
        width: width of a frame.
        heads: attention heads; they divide ``width``.
        feed_forward_factor: inner width of the feed-forward modules in widths.
        kernel_size: frames that the convolution modules see, odd.
        subsampling_factor: features per encoder frame, a power of two.
        subsampling_channels: channels of the convolutions that shorten the features.
        transducer: a transducer in addition to the CTC head; then it is the default decoder.
        attention: an attention decoder instead of the CTC head.
    """

    layers: int = within(1, 100)
    width: int = within(2, 4096)
    heads: int = within(1, 256)
    feed_forward_factor: int = within(1, 16, default=4)
    kernel_size: int = within(1, 255, default=9)
    subsampling_factor: int = within(2, 16, default=8)
    subsampling_channels: int = within(1, 4096, default=128)
    transducer: Transducer | None = None
    attention: Attention | None = None

    def __post_init__(self) -> None:
        if self.transducer and self.attention:
            raise ValueError("transducer and attention exclude each other")
        if self.width % 2 or self.width % self.heads:
            raise ValueError(f"width {self.width} must be an even multiple of heads, {self.heads}")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        if self.subsampling_factor & (self.subsampling_factor - 1):
            raise ValueError(f"subsampling_factor {self.subsampling_factor} must be a power of two")
