"""NeMo's names of our tensors."""

from models.config import BlockConfig, EncoderConfig, IdentifierConfig, JasperConfig

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
    "convolution.layer_norm": "conv.batch_norm",  # a norm of any kind
    "convolution.projection": "conv.pointwise_conv2",
    "second_feed_forward.norm": "norm_feed_forward2",
    "second_feed_forward.expand": "feed_forward2.linear1",
    "second_feed_forward.contract": "feed_forward2.linear2",
    "norm": "norm_out",
}
# Modules of a layer of an attention decoder.
_DECODER_LAYER = {
    "self_attention.norm": "layer_norm_1",
    "self_attention.query": "first_sub_layer.query_net",
    "self_attention.key": "first_sub_layer.key_net",
    "self_attention.value": "first_sub_layer.value_net",
    "self_attention.output": "first_sub_layer.out_projection",
    "cross_attention.norm": "layer_norm_2",
    "cross_attention.query": "second_sub_layer.query_net",
    "cross_attention.key": "second_sub_layer.key_net",
    "cross_attention.value": "second_sub_layer.value_net",
    "cross_attention.output": "second_sub_layer.out_projection",
    "feed_forward.norm": "layer_norm_3",
    "feed_forward.expand": "third_sub_layer.dense_in",
    "feed_forward.contract": "third_sub_layer.dense_out",
}
# Other modules. Where NeMo has two names, a file has one of them: a CTC head is "decoder" when alone and "ctc_decoder"
# beside a transducer; the joint's last layer comes after an activation, and after dropout if it had any.
_ELSEWHERE = {
    "encoder.subsampling.projection": ("encoder.pre_encode.out",),
    "ctc.projection": ("decoder.decoder_layers.0", "ctc_decoder.decoder_layers.0"),
    "predictor.embedding": ("decoder.prediction.embed",),
    "predictor.lstm": ("decoder.prediction.dec_rnn.lstm",),
    "prompt.expand": ("prompt_kernel.0",),
    "prompt.contract": ("prompt_kernel.2",),
    "joint.encoder_projection": ("joint.enc",),
    "joint.predictor_projection": ("joint.pred",),
    "joint.output": ("joint.joint_net.2", "joint.joint_net.1"),
    "attention_decoder.encoder_projection": ("encoder_decoder_proj",),
    "attention_decoder.embedding": ("transf_decoder._embedding.token_embedding",),
    "attention_decoder.embedding_norm": ("transf_decoder._embedding.layer_norm",),
    "attention_decoder.norm": ("transf_decoder._decoder.final_layer_norm",),
}
# Parameters of the attention decoder itself; its table of positions is computed or learned.
_DECODER = {
    "attention_decoder.positions": (
        "transf_decoder._embedding.position_embedding.pos_enc",
        "transf_decoder._embedding.position_embedding.weight",
    ),
    "attention_decoder.output_bias": ("log_softmax.mlp.layer0.bias",),
    "attention_decoder.output_weight": ("log_softmax.mlp.layer0.weight",),
}
# Modules of the head of a language identifier. Its embeddings begin or end with their batch norm.
_LANGUAGE_HEAD = {
    "head.attention.context": "decoder._pooling.attention_layer.0.conv_layer",
    "head.attention.norm": "decoder._pooling.attention_layer.0.bn",
    "head.attention.weight": "decoder._pooling.attention_layer.2",
    "head.output": "decoder.final",
}
# NeMo numbers convolutions and activations of the subsampling in one sequence: a plain stage has two numbers, a
# separable one three, and the first stage is always plain.
_STAGE_PLACES = {"convolution": (2, 0), "depthwise": (3, -1), "pointwise": (3, 0)}

# Modules of a Jasper block outside its sub-blocks.
_SHORTCUT = {"convolution": "0.conv", "batch_norm": "1"}
_SQUEEZE = {"contract": "fc.0", "expand": "fc.2"}

WINDOW = "preprocessor.featurizer.window"
MEL_BANK = "preprocessor.featurizer.fb"
# Tensors that we have once and NeMo twice: our name to NeMo's second name.
TIED = {"attention_decoder.embedding.weight": "log_softmax.mlp.layer0.weight"}


def nemo_names(name: str, encoder: EncoderConfig) -> tuple[str, ...]:
    """Return NeMo's possible names of a parameter or buffer of a model with this encoder, the usual one first."""
    parts = name.split(".")
    if isinstance(encoder, JasperConfig) and parts[0] == "encoder":
        return (_within_jasper(parts, encoder),)
    if name.startswith("encoder.layers."):
        module, _, leaf = ".".join(parts[3:]).rpartition(".")
        if module in _LAYER:
            return (f"encoder.layers.{parts[2]}.{_LAYER[module]}.{leaf}",)
        return (f"encoder.layers.{parts[2]}.{_LAYER[f'{module}.{leaf}']}",)  # a parameter of the layer's module itself
    if name.startswith("encoder.subsampling.stages."):
        places, first = _STAGE_PLACES[parts[4]]
        return (f"encoder.pre_encode.conv.{places * int(parts[3]) + first}.{parts[5]}",)
    if name.startswith("attention_decoder.layers."):
        module, _, leaf = ".".join(parts[3:]).rpartition(".")
        return (f"transf_decoder._decoder.layers.{parts[2]}.{_DECODER_LAYER[module]}.{leaf}",)
    if name.startswith("predictor.embeddings."):
        return (f"decoder.prediction.embeds.{parts[2]}.{parts[3]}",)
    if name in _DECODER:
        return _DECODER[name]
    module, _, leaf = name.rpartition(".")
    return tuple(f"{theirs}.{leaf}" for theirs in _ELSEWHERE[module])


def identifier_names(name: str, config: IdentifierConfig) -> tuple[str, ...]:
    """Return NeMo's name of a parameter or buffer of a language identifier, in a tuple as ``nemo_names`` does."""
    parts = name.split(".")
    if parts[0] == "encoder":
        return (_within_jasper(parts, config.encoder),)
    if parts[1] == "embeddings":
        _, _, index, module, leaf = parts
        is_second = (module == "norm") != (config.pooling == "attention")
        return (f"decoder.emb_layers.{index}.{int(is_second)}.{leaf}",)
    module, _, leaf = name.rpartition(".")
    return (f"{_LANGUAGE_HEAD[module]}.{leaf}",)


def _within_jasper(parts: list[str], encoder: JasperConfig) -> str:
    block, *rest = parts[2:]
    return f"encoder.encoder.{block}.{_within_block(rest, encoder.blocks[int(block)])}"


def _within_block(parts: list[str], block: BlockConfig) -> str:
    """Return NeMo's name of ``parts`` within a block of a Jasper.

    NeMo numbers a block's operations in one sequence: for each sub-block one or two convolutions, batch norm, and,
    except for the last, activation and dropout. Squeeze-and-excitation comes last.
    """
    places = int(block.separable) + 4
    match parts:
        case ["sub_blocks", repeat, module, leaf]:
            first = int(repeat) * places
            convolution = first + int(block.separable)
            place = {"depthwise": f"{first}.conv", "convolution": f"{convolution}.conv"}
            return f"mconv.{place.get(module, convolution + 1)}.{leaf}"
        case ["squeeze", module, leaf]:
            return f"mconv.{block.repeat * places - 2}.{_SQUEEZE[module]}.{leaf}"
        case ["shortcuts", pane, module, leaf]:
            return f"res.{pane}.{_SHORTCUT[module]}.{leaf}"
    raise AssertionError(f"no part of a block: {parts}")


def is_bookkeeping(name: str) -> bool:
    """Return whether a tensor of a NeMo checkpoint belongs to training only."""
    return name.endswith(".num_batches_tracked")


def is_training_of_identifier(name: str) -> bool:
    """Return whether a tensor of a language identifier belongs to training only: also the weights of classes."""
    return is_bookkeeping(name) or name in ("loss.weight", "eval_loss.weight")
