"""Translating the encoder of a NeMo configuration."""

from typing import cast

from models.checkpoint.nemo.jasper import parse_jasper
from models.checkpoint.section import Section
from models.config import AttentionContext, ConformerConfig, ConvolutionNorm, EncoderConfig, Subsampling

_MAX_CONTEXT = 2**16
# Attention of models that were trained to be run on windows of a stream; a whole recording has no limits.
_IN_CHUNKS, _IN_WINDOWS = "chunked_limited", "chunked_limited_with_rc"
_MOST_CONTEXTS = 16


def parse_encoder(section: Section, mels: int) -> EncoderConfig:
    """Translate the ``encoder`` section of a model whose features have ``mels`` bands."""
    if section.class_name("_target_", ("ConformerEncoder", "ConvASREncoder")) == "ConvASREncoder":
        return parse_jasper(section, mels)
    return _conformer(section, mels)


def _conformer(section: Section, mels: int) -> ConformerConfig:
    width = section.integer("d_model", high=2**14)
    channels = section.get("subsampling_conv_channels", -1)
    section.expect("subsampling", "striding", "dw_striding")
    section.expect("conv_norm_type", "batch_norm", "layer_norm")
    contexts = _attention_contexts(section)
    config = ConformerConfig(
        mels=mels,
        layers=section.integer("n_layers", high=512),
        width=width,
        heads=section.integer("n_heads", 4, high=256),
        feed_forward_width=width * section.integer("ff_expansion_factor", 4, high=64),
        kernel_size=section.integer("conv_kernel_size", 31, high=1023),
        subsampling=cast("Subsampling", section.get("subsampling", "striding")),
        subsampling_factor=section.integer("subsampling_factor", 4, low=2, high=64),
        subsampling_channels=width if channels == -1 else section.integer("subsampling_conv_channels", high=2**14),
        bias=section.flag("use_bias", default=True),
        scale_input=section.flag("xscaling", default=True),
        attention_context=contexts[0],
        global_tokens=_global_tokens(section),
        convolution_norm=cast("ConvolutionNorm", section.get("conv_norm_type", "batch_norm")),
        attention_contexts=tuple(one for one in contexts if one) if len(contexts) > 1 else (),
        convolution_left=_convolution_left(section),
        causal_subsampling=section.flag("causal_downsampling", default=False),
    )
    _check_sizes(section, config)
    _expect_what_we_do(section, config)
    section.refuse_the_rest()
    return config


def _attention_contexts(section: Section) -> tuple[AttentionContext | None, ...]:
    """Return the frames that a frame attends to, or None for all; where training drew one of several, the first counts.

    The two sides of a local attention must be equal. If they are not, NeMo's scores by distance are wrong, and equal
    results would have to copy that error.
    """
    section.expect("self_attention_model", "rel_pos", "rel_pos_local_attn")
    if section.get("self_attention_model") == "rel_pos_local_attn":
        section.expect("att_context_style", "regular")
        sides = section.integers("att_context_size", low=1, high=_MAX_CONTEXT)
        section.require("att_context_size", len(sides) == 2 and sides[0] == sides[1], "two equal whole numbers from 1")
        return (AttentionContext(sides[0], sides[1]),)
    value = section.get("att_context_size")
    if section.get("att_context_style") == _IN_WINDOWS or value is None:
        return (None,)
    several = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    in_chunks = section.get("att_context_style") == _IN_CHUNKS
    met = len(several) <= _MOST_CONTEXTS and all(_is_context(one, in_chunks=in_chunks) for one in several)
    meant = "two whole numbers from -1" + (", the first a multiple of the second and one more" if in_chunks else "")
    section.require("att_context_size", met and not (in_chunks and len(several) == 1 and several[0][1] < 0), meant)
    return tuple(_context(left, right, in_chunks=in_chunks) for left, right in several)


def _is_context(value: object, *, in_chunks: bool) -> bool:
    if not (isinstance(value, list) and len(value) == 2):
        return False
    if not all(type(side) is int and -1 <= side <= _MAX_CONTEXT for side in value):
        return False
    left, right = value
    return not in_chunks or right < 0 or left < 0 or left % (right + 1) == 0


def _context(left: int, right: int, *, in_chunks: bool) -> AttentionContext | None:
    if left < 0 and right < 0:
        return None
    chunked = in_chunks and right >= 0
    return AttentionContext(None if left < 0 else left, None if right < 0 else right, in_chunks=chunked)


def _convolution_left(section: Section) -> int | None:
    """Return the frames before a frame that the convolution sees; None for half of them."""
    kernel = section.integer("conv_kernel_size", 31, high=1023)
    value = section.get("conv_context_size")
    if value is None or value == "causal":
        return None if value is None else kernel - 1
    sides = section.integers("conv_context_size", low=0, high=1023)
    fits = len(sides) == 2 and sum(sides) == kernel - 1
    section.require("conv_context_size", fits, f"causal, or two sides of a kernel of {kernel}")
    return None if sides[0] == sides[1] else sides[0]


def _global_tokens(section: Section) -> int:
    """Return how many frames attend to all, and all to them; only local attention has any.

    With more than one, NeMo mixes the heads of different frames, which equal results would have to copy.
    """
    if section.get("self_attention_model") != "rel_pos_local_attn":
        section.ignore("global_tokens", "global_attn_separate")
        return 0
    section.expect("global_tokens", None, 0, 1)
    if not section.get("global_tokens"):
        section.ignore("global_attn_separate")
        return 0
    section.expect("global_attn_separate", False)
    return 1


def _check_sizes(section: Section, config: ConformerConfig) -> None:
    fits = config.width % 2 == 0 and config.width % config.heads == 0
    section.require("d_model", fits, f"even multiples of n_heads, {config.heads}")
    section.require("conv_kernel_size", config.kernel_size % 2 == 1, "odd numbers")
    section.require("subsampling_factor", config.subsampling_factor.bit_count() == 1, "powers of two")


def _expect_what_we_do(section: Section, config: ConformerConfig) -> None:
    section.expect("feat_in", config.mels)
    section.expect("feat_out", -1, 0, None, config.width)
    section.expect("reduction", None)
    section.expect("att_context_style", "regular", _IN_CHUNKS, _IN_WINDOWS)
    if section.get("att_context_style") != _IN_WINDOWS:
        section.expect("att_chunk_context_size", None)
    section.ignore("att_chunk_context_size")
    section.expect("conv_context_style", None, "regular", "dcc")  # of windows, too
    # Options of training, of sharing tensors that the file holds separately, and of other ways to equal results.
    section.ignore("dropout", "dropout_pre_encoder", "dropout_emb", "dropout_att", "att_context_probs")
    section.ignore("stochastic_depth_drop_prob", "stochastic_depth_mode", "stochastic_depth_start_layer")
    section.ignore("untie_biases", "pos_emb_max_len", "reduction_position", "reduction_factor")
    section.ignore("global_tokens_spacing", "subsampling_conv_chunking_factor")
    section.ignore("use_pytorch_sdpa", "use_pytorch_sdpa_backends", "sync_max_audio_length")
