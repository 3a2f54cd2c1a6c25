"""transformers' names of our tensors: NeMo's names, some of them changed."""

from models.checkpoint.nemo.names import nemo_names
from models.config import EncoderConfig

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
}


def transformers_names(name: str, encoder: EncoderConfig) -> tuple[str, ...]:
    """Return transformers' name of a parameter or buffer of a model with this encoder."""
    renamed = nemo_names(name, encoder)[0]
    for nemo, transformers in _CHANGED.items():
        renamed = renamed.replace(nemo, transformers)
    return (renamed,)
