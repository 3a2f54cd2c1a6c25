"""Configurations of models.

``models/checkpoint`` translates those of publishers into these classes; no other code reads the publishers' formats.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

Decoder = Literal["ctc", "rnnt", "tdt", "aed"]
Subsampling = Literal["striding", "dw_striding"]
ConvolutionNorm = Literal["batch_norm", "layer_norm"]
ConvolutionActivation = Literal["relu", "swish"]
DecoderActivation = Literal["relu", "gelu"]
PromptFormat = Literal["canary", "canary2", "cohere"]
Pooling = Literal["statistics", "attention"]

# The longest parts of recordings, in seconds. Training clips say little: a last stage of training may have had short
# ones (parakeet-tdt-0.6b-v3: 10 s). So families have lengths of their own, and longer clips of training count up to a
# limit, because longer parts take memory.
_LONGEST_PIECE = 40.0
_PIECE_OF_CONVOLUTIONS, _PIECE_OF_CONFORMER = 16.0, 16.0
_PIECE_OF_FULL_CONTEXT, _PIECE_OF_ATTENTION_DECODER = 20.0, 30.0
_LARGE_TRANSDUCER = 1024, 24  # width and layers of parakeet-tdt-0.6b, which its makers run on 24 minutes at once


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """A log-mel front end.

    Attributes:
        sample_rate: samples per second.
        window: length of the analysis window in samples.
        hop: samples from one frame to the next.
        window_stride: the hop in seconds, as given in the checkpoint.
        fft_size: points of the Fourier transform, even and at least ``window``.
        mels: mel bands, the height of the features.
        low_hz: lower edge of the lowest band.
        high_hz: upper edge of the highest band.
        preemphasis: weight of the previous sample that is subtracted, or None.
        log_offset: added to the mel power before the logarithm.
        normalized: whether each band of a clip gets mean 0 and deviation 1; models for streams do without.
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
    normalized: bool = True


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """The frames that a frame attends to.

    Attributes:
        left: frames before it; None for all.
        right: frames after it; None for all.
        in_chunks: whether frames are in chunks of ``right`` + 1 from a clip's first on, and see all of their own chunk
            and the ``left`` frames before it, instead of a band around each.
    """

    left: int | None
    right: int | None
    in_chunks: bool = False

    @property
    def before(self) -> int | None:
        """The most frames that a frame sees before it."""
        if self.left is None or not self.in_chunks:
            return self.left
        return self.left + (self.right or 0)

    def __str__(self) -> str:
        """Return both sides as the command line takes them, -1 for all."""
        return ",".join(str(-1 if side is None else side) for side in (self.left, self.right))


@dataclass(frozen=True, slots=True)
class ConformerConfig:
    """A Conformer, or a FastConformer, whose subsampling is depthwise separable (dw_striding).

    Attributes:
        mels: height of the features.
        layers: Conformer layers.
        width: width of a frame.
        heads: attention heads; they divide ``width``.
        feed_forward_width: inner width of the feed-forward modules.
        kernel_size: frames that the convolution module sees, odd.
        subsampling: the convolutions that shorten the features: plain, or depthwise separable.
        subsampling_factor: features per encoder frame, a power of two.
        subsampling_channels: channels of those convolutions.
        bias: whether the linear and convolution layers of the Conformer layers have biases.
        scale_input: whether frames are multiplied by the square root of ``width`` before the first layer.
        attention_context: the frames that a frame attends to, or None for the whole clip.
        attention_contexts: those that it was trained with, if they are several.
        global_tokens: with local attention, number of frames at the start that attend to all and are attended to by
            all: 0 or 1 (Beltagy et al., 2020, Longformer).
        convolution_norm: the norm after the convolution over time.
        convolution_left: frames before a frame that the convolution sees; None for half of the others. The rest of
            ``kernel_size`` are after it.
        causal_subsampling: whether the convolutions that shorten the features look back, and not to both sides.
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
    attention_context: AttentionContext | None = None
    global_tokens: int = 0
    convolution_norm: ConvolutionNorm = "batch_norm"
    attention_contexts: tuple[AttentionContext, ...] = ()
    convolution_left: int | None = None
    causal_subsampling: bool = False

    @property
    def family(self) -> str:
        """What people call such an encoder."""
        return "fastconformer" if self.subsampling == "dw_striding" else "conformer"


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """A block of a Jasper: convolutions over time, each with batch norm, and a residual around them.

    Attributes:
        filters: channels of its output.
        repeat: convolutions one after the other.
        kernel_size: frames that a convolution sees, odd.
        stride: stride of the last convolution; the others have 1.
        dilation: distance of the frames that a convolution sees; 1 if ``stride`` is more than 1.
        separable: whether each convolution is a depthwise and a pointwise one.
        residual: whether the block's input is added to its output.
        dense: whether the inputs of all the dense blocks right before it are added as well.
        squeeze_width: inner width of squeeze-and-excitation, or None if the block has none.
    """

    filters: int
    repeat: int
    kernel_size: int
    stride: int
    dilation: int
    separable: bool
    residual: bool
    dense: bool
    squeeze_width: int | None


@dataclass(frozen=True, slots=True)
class JasperConfig:
    """A Jasper, QuartzNet or Citrinet encoder: convolutions only.

    Attributes:
        mels: height of the features.
        blocks: its blocks in order.
        activation: the activation after each convolution.
    """

    mels: int
    blocks: tuple[BlockConfig, ...]
    activation: ConvolutionActivation

    @property
    def width(self) -> int:
        """Width of a frame."""
        return self.blocks[-1].filters

    @property
    def layers(self) -> int:
        """Number of convolutions one after the other; a depthwise and its pointwise one count once."""
        return sum(block.repeat for block in self.blocks)

    @property
    def subsampling_factor(self) -> int:
        """Features per encoder frame."""
        return math.prod(block.stride for block in self.blocks)

    @property
    def family(self) -> str:
        """What people call such an encoder."""
        if any(block.squeeze_width for block in self.blocks):
            return "citrinet"
        return "quartznet" if any(block.separable for block in self.blocks) else "jasper"


EncoderConfig = ConformerConfig | JasperConfig


@dataclass(frozen=True, slots=True)
class TransducerConfig:
    """The predictor and the joint of an RNN-T, or of a TDT when there are durations.

    Attributes:
        predictor_width: width of the label embedding and of the LSTM.
        predictor_layers: LSTM layers; 0 of a stateless predictor.
        joint_width: width of the sum of frames and predictions.
        durations: frames that a TDT may advance by, in the order of its outputs; empty for an RNN-T.
        max_symbols: most labels in one frame.
        predictor_context: how many labels a stateless predictor reads; None: the predictor is an LSTM.
        is_predictor_normalized: whether the output of a stateless predictor has mean 0 and variance 1.
    """

    predictor_width: int
    predictor_layers: int
    joint_width: int
    durations: tuple[int, ...]
    max_symbols: int
    predictor_context: int | None = None
    is_predictor_normalized: bool = False


MAX_BEAM = 32
ANY_LANGUAGE = "auto"  # in the names of language prompts
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[A-Z]{2})?")


@dataclass(frozen=True, slots=True)
class AttentionDecoderConfig:
    """The decoder of an attention encoder-decoder (AED).

    Attributes:
        width: width of a token; encoder frames of another width are projected to it.
        layers: layers of self-attention, cross-attention and feed-forward.
        heads: attention heads; they divide ``width``.
        feed_forward_width: inner width of the feed-forward modules.
        activation: between their two linear layers.
        positions: the longest sequence, prompt and text together.
        length_margin: tokens that a sequence may have beyond the number of its utterance's encoder frames; None: only
            ``positions`` bounds it.
        beam: beam width of the search; 1 is greedy.
        length_penalty: exponent of the length penalty in the scores of a beam.
        tied: whether the output layer shares the embedding's weights.
    """

    width: int
    layers: int
    heads: int
    feed_forward_width: int
    activation: DecoderActivation
    positions: int
    length_margin: int | None
    beam: int = 1
    length_penalty: float = 0.0
    tied: bool = True


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """The prompts of an attention decoder.

    Attributes:
        format: which special tokens make a prompt, and in which order.
        languages: ISO 639-1 codes of its languages, as far as its vocabulary names them.
        default_language: the spoken language where a prompt gives none.
        timestamps: whether it can write when words begin and end.
        itn: whether it can be asked to write numbers as people do (inverse text normalisation).
    """

    format: PromptFormat
    languages: tuple[str, ...]
    default_language: str
    timestamps: bool
    itn: bool = False


@dataclass(frozen=True, slots=True)
class LanguagePromptConfig:
    """Languages that are given to an encoder's frames.

    Attributes:
        places: names of languages, such as ``en-US`` or ``en``, and the place of each among the inputs.
        size: number of places.
    """

    places: tuple[tuple[str, int], ...]
    size: int

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639 codes of the languages, without regions."""
        return tuple(sorted({name.partition("-")[0] for name, _ in self.places if _LANGUAGE.fullmatch(name)}))

    def place(self, language: str | None) -> int:
        """Return the place of a language by its code, or of any language for None."""
        named = dict(self.places)
        if language is None:
            return named[ANY_LANGUAGE]
        regional = (name for name, _ in self.places if name.partition("-")[0] == language)
        return named[language] if language in named else named[next(regional)]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A speech recognition model.

    Attributes:
        name: the publisher's class of the model, such as ``EncDecCTCModelBPE``.
        features: the front end.
        encoder: the encoder.
        vocabulary_size: labels without the blank.
        ctc: whether there is a CTC head.
        transducer: the transducer, if there is one.
        attention: the attention decoder, if there is one.
        prompts: its prompts, if it has an attention decoder.
        language_prompts: the languages that its encoder's frames are given, if they are.
        trained_seconds: length of its longest training clips, as given in its checkpoint; None where it is not.
    """

    name: str
    features: FeatureConfig
    encoder: EncoderConfig
    vocabulary_size: int
    ctc: bool
    transducer: TransducerConfig | None
    attention: AttentionDecoderConfig | None = None
    prompts: PromptConfig | None = None
    trained_seconds: float | None = None
    language_prompts: LanguagePromptConfig | None = None

    @property
    def piece_seconds(self) -> float | None:
        """The longest part of a recording that it transcribes well; None for local attention, which has no limit."""
        return self._piece[0]

    @property
    def piece_reason(self) -> str:
        """Why ``piece_seconds`` is so long."""
        return self._piece[1]

    @property
    def _piece(self) -> tuple[float | None, str]:
        encoder, trained = self.encoder, self.trained_seconds
        if isinstance(encoder, JasperConfig):
            length, reason = _PIECE_OF_CONVOLUTIONS, "an encoder of convolutions"
        elif encoder.attention_context and encoder.attention_context.left is not None:
            return None, "no limit, because attention looks back a limited number of frames"
        elif self.attention:
            length, reason = _PIECE_OF_ATTENTION_DECODER, "an attention decoder"
        elif self.decoders[0] == "tdt" and (encoder.width, encoder.layers) == _LARGE_TRANSDUCER:
            length, reason = _LONGEST_PIECE, "parakeet-tdt-0.6b, whose makers transcribe longer recordings at once"
        elif encoder.family == "conformer":
            length, reason = _PIECE_OF_CONFORMER, "a Conformer, whose recipes have clips of up to 16.7 s"
        else:
            length, reason = _PIECE_OF_FULL_CONTEXT, "an encoder of full context"
        if trained is not None and trained > length:
            return min(trained, _LONGEST_PIECE), f"training clips were {trained:g} s long"
        return length, reason

    @property
    def decoders(self) -> tuple[Decoder, ...]:
        """Its decoders, the default first."""
        names: list[Decoder] = []
        if self.transducer:
            names.append("tdt" if self.transducer.durations else "rnnt")
        if self.ctc:
            names.append("ctc")
        if self.attention:
            names.append("aed")
        return tuple(names)

    def seconds(self, frames: int) -> float:
        """Return the second at which a frame begins, rounded as in NeMo: by the hop, then by the subsampling."""
        return frames * self.features.window_stride * self.encoder.subsampling_factor


@dataclass(frozen=True, slots=True)
class IdentifierConfig:
    """A model that identifies the spoken language.

    Attributes:
        name: the publisher's class of the model, ``EncDecSpeakerLabelModel``.
        features: the front end.
        encoder: the encoder.
        labels: its classes, in the order of its outputs.
        pooling: how the frames of a clip become one vector: mean and deviation, plain or weighted by attention.
        attention_width: inner width of the attention; 0 if there is none.
        embedding_widths: widths of the layers between the pooling and the last one.
    """

    name: str
    features: FeatureConfig
    encoder: JasperConfig
    labels: tuple[str, ...]
    pooling: Pooling
    attention_width: int
    embedding_widths: tuple[int, ...]
