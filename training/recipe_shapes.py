"""The shapes of models that a recipe may ask for, in frozen dataclasses; see training/recipe.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training.recipe_bounds import within


@dataclass(frozen=True, slots=True, kw_only=True)
class Transducer:
    """Shape of a predictor and a joint beside the CTC head."""

    predictor_width: int = within(1, 4096)  # width of the label embedding and the LSTM
    predictor_layers: int = within(1, 16, default=1)  # layers of the LSTM
    joint_width: int = within(1, 4096)  # width of the sum of frames and predictions
    # Frames that a token-and-duration transducer (TDT; Xu et al., 2023) may pass over, ascending; null for an RNN-T
    # (Graves, 2012).
    durations: tuple[int, ...] | None = within(0, 64, default=(0, 1, 2, 3, 4))

    def __post_init__(self) -> None:
        durations = self.durations or (1,)
        if list(durations) != sorted(set(durations)) or not durations[-1]:
            raise ValueError(f"durations {list(durations)} must ascend and end above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Shape of an attention decoder, Canary's (Puvvada et al., 2024, arXiv 2406.19674)."""

    width: int = within(2, 4096)  # width of a token; encoder frames of another width are projected to it
    layers: int = within(1, 100)  # layers of self-attention, cross-attention and feed-forward
    heads: int = within(1, 256)  # attention heads; they divide ``width``
    feed_forward_factor: int = within(1, 16, default=4)  # inner width of the feed-forward modules in widths
    # The longest sequence, prompt and text together; longer transcripts are left out.
    positions: int = within(32, 2**14, default=512)

    def __post_init__(self) -> None:
        if self.width % 2 or self.width % self.heads:
            raise ValueError(f"width {self.width} must be an even multiple of heads, {self.heads}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a convolutional encoder: convolutions over time, each with batch norm, and a residual around them."""

    filters: int = within(1, 2**14)  # channels of its output
    kernel_size: int = within(1, 1023)  # frames that a convolution sees, odd
    repeat: int = within(1, 32, default=1)  # convolutions one after the other
    stride: int = within(1, 64, default=1)  # stride of the last of them
    dilation: int = within(1, 64, default=1)  # distance of the frames that a convolution sees
    # Whether each convolution is a depthwise and a pointwise one (QuartzNet), or a full one (Jasper).
    separable: bool = True
    residual: bool = True  # whether the block's input joins its output
    dense: bool = False  # whether the inputs of all dense blocks right before it join too (Jasper's dense residual)
    # ``filters`` divided by the inner width of squeeze-and-excitation (Citrinet); null for none.
    squeeze_ratio: int | None = within(1, 2**14, default=None)

    def __post_init__(self) -> None:
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        if self.squeeze_ratio and self.squeeze_ratio > self.filters:
            raise ValueError(f"squeeze_ratio {self.squeeze_ratio} must be at most filters, {self.filters}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutional:
    """Shape of a Jasper (Li et al., 2019), a QuartzNet or a Citrinet with CTC."""

    blocks: tuple[Block, ...]  # its blocks in order
    activation: Literal["relu", "swish"] = "relu"  # what follows each convolution
    mels: int = within(1, 256, default=64)  # height of the features


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language of an attention decoder."""

    code: str  # two letters of ISO 639-1
    vocabulary: Path  # a SentencePiece model of its text

    def __post_init__(self) -> None:
        if not (len(self.code) == 2 and self.code.isascii() and self.code.islower()):
            raise ValueError(f"code {self.code!r} must be two letters, such as en")


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """Shape of the FastConformer that is trained (Rekesh et al., 2023)."""

    layers: int = within(1, 100)  # Conformer layers
    width: int = within(2, 4096)  # width of a frame
    heads: int = within(1, 256)  # attention heads; they divide ``width``
    feed_forward_factor: int = within(1, 16, default=4)  # inner width of the feed-forward modules in widths
    kernel_size: int = within(1, 255, default=9)  # frames that the convolution modules see, odd
    subsampling_factor: int = within(2, 16, default=8)  # features per encoder frame, a power of two
    subsampling_channels: int = within(1, 4096, default=128)  # channels of the convolutions that shorten the features
    transducer: Transducer | None = None  # a transducer in addition to the CTC head; then it is the default decoder
    attention: Attention | None = None  # an attention decoder instead of the CTC head

    def __post_init__(self) -> None:
        if self.transducer and self.attention:
            raise ValueError("transducer and attention exclude each other")
        if self.width % 2 or self.width % self.heads:
            raise ValueError(f"width {self.width} must be an even multiple of heads, {self.heads}")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        if self.subsampling_factor & (self.subsampling_factor - 1):
            raise ValueError(f"subsampling_factor {self.subsampling_factor} must be a power of two")
