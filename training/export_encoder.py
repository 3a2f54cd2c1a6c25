"""NeMo's configuration of an encoder, the inverse of ``models/checkpoint``."""

from typing import Any

from models.config import BlockConfig, ConformerConfig, EncoderConfig, JasperConfig

_MODULES = "nemo.collections.asr.modules"


def encoder_section(encoder: EncoderConfig, dropout: float) -> dict[str, Any]:
    """Return the section of an encoder, with its dropout in training."""
    return _jasper(encoder, dropout) if isinstance(encoder, JasperConfig) else _conformer(encoder, dropout)


def _conformer(encoder: ConformerConfig, dropout: float) -> dict[str, Any]:
    return {
        "_target_": f"{_MODULES}.ConformerEncoder",
        "feat_in": encoder.mels,
        "feat_out": -1,
        "n_layers": encoder.layers,
        "d_model": encoder.width,
        "use_bias": encoder.bias,
        "subsampling": encoder.subsampling,
        "subsampling_factor": encoder.subsampling_factor,
        "subsampling_conv_channels": encoder.subsampling_channels,
        "causal_downsampling": False,
        "ff_expansion_factor": encoder.feed_forward_width // encoder.width,
        "self_attention_model": "rel_pos",
        "n_heads": encoder.heads,
        "att_context_size": [-1, -1],
        "xscaling": encoder.scale_input,
        "untie_biases": True,
        "conv_kernel_size": encoder.kernel_size,
        "conv_norm_type": "batch_norm",
        "dropout": dropout,
        "dropout_pre_encoder": dropout,
        "dropout_emb": 0.0,
        "dropout_att": dropout,
    }


def _jasper(encoder: JasperConfig, dropout: float) -> dict[str, Any]:
    return {
        "_target_": f"{_MODULES}.ConvASREncoder",
        "feat_in": encoder.mels,
        "activation": encoder.activation,
        "conv_mask": True,
        "jasper": [_block(block, dropout) for block in encoder.blocks],
    }


def _block(block: BlockConfig, dropout: float) -> dict[str, Any]:
    section: dict[str, Any] = {
        "filters": block.filters,
        "repeat": block.repeat,
        "kernel": [block.kernel_size],
        "stride": [block.stride],
        "dilation": [block.dilation],
        "dropout": dropout,
        "separable": block.separable,
        "residual": block.residual,
        "residual_dense": block.dense,
        # Set for every block, because NeMo keeps it for the blocks that follow.
        "residual_mode": "stride_add" if block.stride > 1 else "add",
    }
    if block.stride > 1 and block.repeat > 1:
        section["stride_last"] = True
    if block.squeeze_width:
        section |= {"se": True, "se_reduction_ratio": block.filters // block.squeeze_width, "se_context_size": -1}
    return section
