"""Translating the decoder, the prompts and the names of tensors of a transformers folder of Canary."""

from typing import cast

from models.checkpoint.section import Section
from models.checkpoint.transformers.encoder import ignore_bookkeeping
from models.checkpoint.transformers.names import transformers_names
from models.config import AttentionDecoderConfig, DecoderActivation, EncoderConfig, PromptConfig

# Tokens that a sequence, prompt and text together, may have beyond the number of encoder frames: as in NeMo's
# checkpoints, from which these are converted. transformers bounds texts by its generation configuration, without regard
# to the audio.
_LENGTH_MARGIN = 50
_MULTIPLE = 8  # NeMo rounds the number of outputs up to one, and conversions keep it
_DEFAULT_END = 3
_DEFAULT_VOCABULARY = 16384

_LAYER = {
    "self_attention.norm": "input_layernorm",
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.o_proj",
    "cross_attention.norm": "post_attention_layernorm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.o_proj",
    "feed_forward.norm": "final_layernorm",
    "feed_forward.expand": "mlp.fc1",
    "feed_forward.contract": "mlp.fc2",
}
_ELSEWHERE = {
    "attention_decoder.embedding.weight": "model.decoder.embed_tokens.weight",
    "attention_decoder.embedding_norm.weight": "model.decoder.embedding_layernorm.weight",
    "attention_decoder.embedding_norm.bias": "model.decoder.embedding_layernorm.bias",
    "attention_decoder.norm.weight": "model.decoder.norm.weight",
    "attention_decoder.norm.bias": "model.decoder.norm.bias",
    "attention_decoder.output_bias": "proj_out.bias",
}
POSITIONS = "attention_decoder.positions"  # computed, because no file holds them
EMBEDDING = "attention_decoder.embedding.weight"
TIED = "proj_out.weight"  # a copy of the embedding, in some files

# Every such model has these; its languages are found among the pieces of its vocabulary (``prompted``).
PROMPTS = PromptConfig(format="canary2", languages=(), default_language="en", timestamps=False)


def parse_decoder(root: Section, encoder_width: int) -> AttentionDecoderConfig:
    """Translate the decoder over an encoder of ``encoder_width``."""
    section = root.section("decoder_config")
    config = decoder_config(root, section, length_margin=_LENGTH_MARGIN, tied=True)
    share = config.width // config.heads
    section.require("hidden_size", config.width == encoder_width, f"as the encoder's, {encoder_width}")
    section.expect("model_type", "canary_decoder")
    section.expect("vocab_size", root.get("vocab_size", _DEFAULT_VOCABULARY))
    section.expect("num_key_value_heads", config.heads)
    section.require("head_dim", section.get("head_dim", 128) in (None, share), str(share))
    section.ignore("architectures")
    ignore_bookkeeping(section)
    section.refuse_the_rest()
    return config


def decoder_config(root: Section, section: Section, *, length_margin: int | None, tied: bool) -> AttentionDecoderConfig:
    """Translate what all attention decoders of transformers have.

    Args:
        root: the section of the vocabulary.
        section: that of the sizes.
        length_margin: see ``AttentionDecoderConfig``.
        tied: whether the output layer must share the embedding's weights.
    """
    root.expect("tie_word_embeddings", tied)
    size = root.integer("vocab_size", _DEFAULT_VOCABULARY, low=_MULTIPLE, high=2**20)
    root.require("vocab_size", size % _MULTIPLE == 0, f"multiples of {_MULTIPLE}")
    root.ignore("pad_token_id", "decoder_start_token_id")
    width = section.integer("hidden_size", 1024, high=2**14)
    heads = section.integer("num_attention_heads", 8, high=256)
    fits = width % 2 == 0 and width % heads == 0
    section.require("hidden_size", fits, f"even multiples of num_attention_heads, {heads}")
    section.expect("attention_bias", True)
    section.expect("hidden_act", "relu", "gelu")
    section.ignore("attention_dropout", "pad_token_id")
    return AttentionDecoderConfig(
        width=width,
        layers=section.integer("num_hidden_layers", 8, high=512),
        heads=heads,
        feed_forward_width=section.integer("intermediate_size", 4096, high=2**16),
        activation=cast("DecoderActivation", section.get("hidden_act", "relu")),
        positions=section.integer("max_position_embeddings", 1024, low=32, high=2**14),
        length_margin=length_margin,
        tied=tied,
    )


def end_token(root: Section) -> int:
    """Return the id of the token that ends a text."""
    return root.integer("eos_token_id", _DEFAULT_END, low=0, high=2**20)


def canary_names(name: str, encoder: EncoderConfig) -> tuple[str, ...]:
    """Return transformers' name of a parameter or buffer of a Canary with this encoder."""
    if name.startswith("encoder."):
        return (f"model.{transformers_names(name, encoder)[0]}",)
    if name in _ELSEWHERE:
        return (_ELSEWHERE[name],)
    number, _, rest = name.removeprefix("attention_decoder.layers.").partition(".")
    module, _, leaf = rest.rpartition(".")
    return (f"model.decoder.layers.{number}.{_LAYER[module]}.{leaf}",)
