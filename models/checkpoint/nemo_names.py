"""What NeMo calls our tensors: the only place that knows its spellings."""

# Modules of a Conformer layer, ours to NeMo's.
_LAYER = {
    "first_feed_forward.norm": "norm_feed_forward1",
    "first_feed_forward.expand": "feed_forward1.linear1",
    "first_feed_forward.contract": "feed_forward1.linear2",
    "attention.norm": "norm_self_att",
    "attention.query": "self_attn.linear_q",
    "attention.key": "self_attn.linear_k",
    "attention.value": "self_attn.linear_v",
    "attention.output": "self_attn.linear_out",
    "attention.position": "self_attn.linear_pos",
    "attention.content_bias": "self_attn.pos_bias_u",
    "attention.position_bias": "self_attn.pos_bias_v",
    "convolution.norm": "norm_conv",
    "convolution.gate": "conv.pointwise_conv1",
    "convolution.depthwise": "conv.depthwise_conv",
    "convolution.batch_norm": "conv.batch_norm",
    "convolution.projection": "conv.pointwise_conv2",
    "second_feed_forward.norm": "norm_feed_forward2",
    "second_feed_forward.expand": "feed_forward2.linear1",
    "second_feed_forward.contract": "feed_forward2.linear2",
    "norm": "norm_out",
}
# Modules elsewhere. Where NeMo has two spellings, a file has one of them: a CTC head is "decoder" when alone and
# "ctc_decoder" beside a transducer; the joint's last layer comes after an activation, and after dropout if it had any.
_ELSEWHERE = {
    "encoder.subsampling.projection": ("encoder.pre_encode.out",),
    "ctc.projection": ("decoder.decoder_layers.0", "ctc_decoder.decoder_layers.0"),
    "predictor.embedding": ("decoder.prediction.embed",),
    "predictor.lstm": ("decoder.prediction.dec_rnn.lstm",),
    "joint.encoder_projection": ("joint.enc",),
    "joint.predictor_projection": ("joint.pred",),
    "joint.output": ("joint.joint_net.2", "joint.joint_net.1"),
}
# NeMo numbers convolutions and activations of the subsampling in one row: a plain stage takes two places, a separable
# one three, and the first stage is always plain.
_STAGE_PLACES = {"convolution": (2, 0), "depthwise": (3, -1), "pointwise": (3, 0)}

WINDOW = "preprocessor.featurizer.window"
MEL_BANK = "preprocessor.featurizer.fb"


def nemo_names(name: str) -> tuple[str, ...]:
    """Return the spellings of one of our parameters or buffers in a NeMo checkpoint, the usual one first."""
    parts = name.split(".")
    if name.startswith("encoder.layers."):
        module, _, leaf = ".".join(parts[3:]).rpartition(".")
        if module in _LAYER:
            return (f"encoder.layers.{parts[2]}.{_LAYER[module]}.{leaf}",)
        return (f"encoder.layers.{parts[2]}.{_LAYER[f'{module}.{leaf}']}",)  # a parameter right in the layer's module
    if name.startswith("encoder.subsampling.stages."):
        places, first = _STAGE_PLACES[parts[4]]
        return (f"encoder.pre_encode.conv.{places * int(parts[3]) + first}.{parts[5]}",)
    module, _, leaf = name.rpartition(".")
    return tuple(f"{spelling}.{leaf}" for spelling in _ELSEWHERE[module])


def is_bookkeeping(name: str) -> bool:
    """Tell whether a tensor of a NeMo checkpoint belongs to training only."""
    return name.endswith(".num_batches_tracked")
