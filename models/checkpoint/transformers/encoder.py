"""Translating the ``encoder_config`` of a transformers configuration: a ParakeetEncoder, or one for streams."""

from dataclasses import replace

from models.checkpoint.section import Section
from models.config import AttentionContext, ConformerConfig

_DEFAULT_WINDOW, _DEFAULT_LOOK_AHEAD = 71, 13
_MAX_CONTEXT, _MOST_CONTEXTS = 10_000, 64


def parse_encoder(section: Section) -> ConformerConfig:
    """Translate the section of a ParakeetEncoder; absent keys have transformers' defaults."""
    config = _sizes(section)
    section.expect("model_type", "parakeet_encoder")
    whole = config.mels % config.subsampling_factor == 0
    section.require("num_mel_bins", whole, f"multiples of subsampling_factor, {config.subsampling_factor}")
    _finish(section, config)
    return config


def parse_streaming_encoder(section: Section, processor: Section) -> ConformerConfig:
    """Translate the section of a NemotronAsrStreamingEncoder: causal, without batch norm, attention in chunks.

    Args:
        section: the encoder's section.
        processor: the processor's, which has the look-aheads of training where the encoder's section has not.
    """
    config = _sizes(section)
    section.expect("model_type", "nemotron_asr_streaming_encoder")
    left = section.integer("sliding_window", _DEFAULT_WINDOW, low=1, high=_MAX_CONTEXT + 1) - 1
    first = section.integer("default_num_lookahead_tokens", _DEFAULT_LOOK_AHEAD, low=0, high=_MAX_CONTEXT)
    rights = [first]
    for one in (section, processor):
        one.expect("default_num_lookahead_tokens", None, first)
        trained = one.integers("supported_num_lookahead_tokens", low=0, high=_MAX_CONTEXT)
        one.require("supported_num_lookahead_tokens", len(trained) <= _MOST_CONTEXTS, f"{_MOST_CONTEXTS} or fewer")
        rights += [right for right in trained if right not in rights]
    for right in rights:
        section.require("sliding_window", left % (right + 1) == 0, f"1 above a multiple of {right + 1}")
    contexts = tuple(AttentionContext(left, right, in_chunks=True) for right in rights)
    _finish(section, config)
    return replace(
        config,
        attention_context=contexts[0],
        attention_contexts=contexts if len(contexts) > 1 else (),
        convolution_norm="layer_norm",
        convolution_left=config.kernel_size - 1,
        causal_subsampling=True,
    )


def _sizes(section: Section) -> ConformerConfig:
    config = ConformerConfig(
        mels=section.integer("num_mel_bins", 80, high=512),
        layers=section.integer("num_hidden_layers", 24, high=512),
        width=section.integer("hidden_size", 1024, high=2**14),
        heads=section.integer("num_attention_heads", 8, high=256),
        feed_forward_width=section.integer("intermediate_size", 4096, high=2**17),
        kernel_size=section.integer("conv_kernel_size", 9, high=1023),
        subsampling="dw_striding",
        subsampling_factor=section.integer("subsampling_factor", 8, low=2, high=64),
        subsampling_channels=section.integer("subsampling_conv_channels", 256, high=2**14),
        bias=section.flag("attention_bias", default=True),
        scale_input=section.flag("scale_input", default=True),
    )
    fits = config.width % 2 == 0 and config.width % config.heads == 0
    section.require("hidden_size", fits, f"even multiples of num_attention_heads, {config.heads}")
    section.require("conv_kernel_size", config.kernel_size % 2 == 1, "odd numbers")
    section.require("subsampling_factor", config.subsampling_factor.bit_count() == 1, "powers of two")
    return config


def ignore_bookkeeping(section: Section) -> None:
    """Mark the keys as read that any configuration of transformers may have and that change no transcript."""
    section.ignore("_name_or_path", "_attn_implementation_autoset", "transformers_version", "dtype", "torch_dtype")
    section.ignore("initializer_range", "use_cache", "return_dict", "output_attentions", "output_hidden_states")
    section.ignore("is_encoder_decoder", "is_decoder", "tie_word_embeddings", "tie_encoder_decoder", "torchscript")
    section.ignore("chunk_size_feed_forward", "id2label", "label2id", "problem_type", "tokenizer_class", "prefix")
    section.ignore("bos_token_id", "eos_token_id", "sep_token_id", "finetuning_task", "task_specific_params")
    for switch in ("add_cross_attention", "cross_attention_hidden_size", "pruned_heads"):
        section.expect(switch, None, False, {})


def _finish(section: Section, config: ConformerConfig) -> None:
    section.expect("hidden_act", "silu", "swish")
    section.expect("subsampling_conv_kernel_size", 3)
    section.expect("subsampling_conv_stride", 2)
    section.expect("num_key_value_heads", config.heads)
    section.expect("head_dim", None, config.width // config.heads)
    # Folders from before this key existed have biases in all convolutions.
    agree = section.flag("convolution_bias", default=True) == config.bias
    section.require("convolution_bias", agree, f"as attention_bias, {str(config.bias).lower()}")
    # Options of training, and the length of a table of positions that we compute as long as needed.
    section.ignore("dropout", "dropout_positions", "layerdrop", "activation_dropout", "attention_dropout")
    section.ignore("max_position_embeddings", "architectures", "pad_token_id")
    ignore_bookkeeping(section)
    section.refuse_the_rest()
