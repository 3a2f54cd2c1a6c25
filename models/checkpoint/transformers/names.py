"""transformers' names of our tensors: NeMo's names, some of them changed."""

import re

from models.checkpoint.nemo.names import nemo_names
from models.config import ConformerConfig, EncoderConfig

_CHANGED = {
    "encoder.pre_encode.conv.": "encoder.subsampling.layers.",
    "encoder.pre_encode.out.": "encoder.subsampling.linear.",
    ".self_attn.linear_q.": ".self_attn.q_proj.",
    ".self_attn.linear_k.": ".self_attn.k_proj.",
    ".self_attn.linear_v.": ".self_attn.v_proj.",
    ".self_attn.linear_out.": ".self_attn.o_proj.",
    ".self_attn.linear_pos.": ".self_attn.relative_k_proj.",
    ".self_attn.pos_bias_": ".self_attn.bias_",
    ".conv.batch_norm.": ".conv.norm.",
    "decoder.decoder_layers.0.": "ctc_head.",
    "decoder.prediction.embed.": "decoder.embedding.",
    "decoder.prediction.dec_rnn.lstm.": "decoder.lstm.",
    "joint.enc.": "encoder_projector.",
    "joint.pred.": "decoder.decoder_projector.",
    "joint.joint_net.2.": "joint.head.",
    "prompt_kernel.0.": "prompt_projector.linear_1.",
    "prompt_kernel.2.": "prompt_projector.linear_2.",
}
_STAGE = re.compile(r"encoder\.subsampling\.layers\.(\d+)\.")


def transformers_names(name: str, encoder: EncoderConfig) -> tuple[str, ...]:
    """Return transformers' name of a parameter or buffer of a model with this encoder."""
    renamed = nemo_names(name, encoder)[0]
    for nemo, transformers in _CHANGED.items():
        renamed = renamed.replace(nemo, transformers)
    if isinstance(encoder, ConformerConfig) and encoder.causal_subsampling:
        renamed = _STAGE.sub(lambda found: f"encoder.subsampling.{_causal_layer(int(found[1]))}.", renamed)
    return (renamed,)


def _causal_layer(place: int) -> str:
    """Return the name of a convolution of causal subsampling by its place in NeMo's list, which counts the ReLUs."""
    if place == 0:
        return "conv_in"
    return f"layers.{(place - 2) // 3}.{'depthwise' if place % 3 == 2 else 'pointwise'}_conv"
