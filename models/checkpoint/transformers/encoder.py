"""Translating the ``encoder_config`` of a transformers configuration, that of a ParakeetEncoder."""

from models.checkpoint.section import Section
from models.config import ConformerConfig


def parse_encoder(section: Section) -> ConformerConfig:
    """Translate the encoder's section; absent keys have transformers' defaults.

    Raises:
        UnsupportedValueError: naming the first key that asks for something else than we do.
    """
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
    _check_sizes(section, config)
    _expect_what_we_do(section, config)
    ignore_bookkeeping(section)
    section.refuse_the_rest()
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


def _check_sizes(section: Section, config: ConformerConfig) -> None:
    fits = config.width % 2 == 0 and config.width % config.heads == 0
    section.require("hidden_size", fits, f"even multiples of num_attention_heads, {config.heads}")
    section.require("conv_kernel_size", config.kernel_size % 2 == 1, "odd numbers")
    section.require("subsampling_factor", config.subsampling_factor.bit_count() == 1, "powers of two")
    whole = config.mels % config.subsampling_factor == 0
    section.require("num_mel_bins", whole, f"multiples of subsampling_factor, {config.subsampling_factor}")


def _expect_what_we_do(section: Section, config: ConformerConfig) -> None:
    section.expect("model_type", "parakeet_encoder")
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
