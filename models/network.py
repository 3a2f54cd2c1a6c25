"""The trained part of a model, or of a language identifier: its encoder and its heads."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.config import ConformerConfig, EncoderConfig, IdentifierConfig, ModelConfig, TransducerConfig
from models.device.cpu import can_pack
from models.device.packed_linear import PackedLinear, is_worth_packing
from models.device.quantized_linear import QuantizedLinear, is_worth_quantizing
from models.encoders.attention import RelativeAttention
from models.encoders.conformer import ConformerEncoder, ConvolutionModule, FeedForward
from models.encoders.jasper import JasperEncoder, Shortcut, SubBlock
from models.encoders.subsampling import Subsampling
from models.heads.attention_decoder import AttentionDecoder, DecoderLayer
from models.heads.ctc import CTCHead
from models.heads.language import LanguageHead
from models.heads.language_prompt import LanguagePrompt
from models.heads.stateless import AnyPredictor, StatelessPredictor
from models.heads.transducer import Joint, Predictor


class Network(nn.Module):
    """An encoder and the heads that read its frames; a head that the model does not have is None."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        """Build a network with random weights; ``dropout`` is that of encoder and attention decoder in training."""
        super().__init__()
        width, labels, transducer = config.encoder.width, config.vocabulary_size, config.transducer
        self.encoder = _encoder(config.encoder, dropout)
        prompts = config.language_prompts
        self.prompt = LanguagePrompt(width, prompts.size) if prompts else None
        self.ctc = CTCHead(width, labels) if config.ctc else None
        self.predictor: AnyPredictor | None = None
        self.joint: Joint | None = None
        if transducer:
            self.predictor = _predictor(labels, transducer)
            widths = width, transducer.predictor_width, transducer.joint_width
            self.joint = Joint(*widths, labels, transducer.durations)
        self.attention_decoder: AttentionDecoder | None = None
        if config.attention:
            self.attention_decoder = AttentionDecoder(config.attention, width, labels, dropout)

    @classmethod
    def without_weights(cls, config: ModelConfig) -> "Network":
        """Return a network whose tensors have shapes only, to be replaced by loaded ones; this costs no memory."""
        with torch.device("meta"):
            return cls(config)

    def fold(self) -> None:
        """Prepare inference: compute once what depends on weights alone, such as batch norms and merged products."""
        folding = (Subsampling, ConvolutionModule, RelativeAttention, SubBlock, Shortcut, Predictor, DecoderLayer)
        # The list holds only modules that fold, so that weights which a fold replaces are freed at once.
        for module in [module for module in self.modules() if isinstance(module, folding)]:
            module.fold()

    def pack(self, dtype: torch.dtype) -> None:
        """Prepare inference on a CPU, as the last step: pack the weights, of ``dtype``, for their products."""
        if not can_pack(dtype):
            return
        packing = (FeedForward, Subsampling, Predictor)
        for module in [module for module in self.modules() if isinstance(module, packing)]:
            module.pack()
        for part in self.children():
            if part is not self.prompt:  # which takes its weights apart
                _replace_products(part, PackedLinear.of, lambda linear: is_worth_packing(linear.weight))

    def quantize(self, dtype: torch.dtype) -> None:
        """Prepare inference on a CPU, before the move to ``dtype``: compute the encoder's products in 8 bits."""
        _replace_products(self.encoder, lambda linear: QuantizedLinear(linear, dtype), is_worth_quantizing)


class IdentifierNetwork(nn.Module):
    """An encoder of convolutions, and a head that scores languages."""

    def __init__(self, config: IdentifierConfig) -> None:
        """Build a network with random weights."""
        super().__init__()
        self.encoder = JasperEncoder(config.encoder)
        self.head = LanguageHead(config)

    @classmethod
    def without_weights(cls, config: IdentifierConfig) -> "IdentifierNetwork":
        """Return a network whose tensors have shapes only, to be replaced by loaded ones; this costs no memory."""
        with torch.device("meta"):
            return cls(config)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores of the labels, [batch, labels], float32.

        Args:
            features: [batch, mels, frames], in the dtype of the encoder; padding may hold anything.
            lengths: frames of each row, [batch].
        """
        scores: Tensor = self.head(*self.encoder(features, lengths))
        return scores

    def fold(self) -> None:
        """Prepare inference: let the encoder's convolutions do the work of its batch norms."""
        for module in [module for module in self.encoder.modules() if isinstance(module, SubBlock | Shortcut)]:
            module.fold()


def _replace_products(
    module: nn.Module, replacement: Callable[[nn.Linear], nn.Module], is_worth_it: Callable[[nn.Linear], bool]
) -> None:
    """Replace the products that are worth it one after the other, so that each frees its weights at once."""
    for name, child in module.named_children():
        if type(child) is not nn.Linear:
            _replace_products(child, replacement, is_worth_it)
        elif is_worth_it(child):
            setattr(module, name, replacement(child))


def _encoder(config: EncoderConfig, dropout: float) -> ConformerEncoder | JasperEncoder:
    if isinstance(config, ConformerConfig):
        return ConformerEncoder(config, dropout)
    return JasperEncoder(config, dropout)


def _predictor(labels: int, config: TransducerConfig) -> AnyPredictor:
    width, context = config.predictor_width, config.predictor_context
    if context is None:
        return Predictor(labels, width, config.predictor_layers)
    return StatelessPredictor(labels, width, context, is_normalized=config.is_predictor_normalized)
