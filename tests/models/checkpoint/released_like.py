"""Toy checkpoints laid out like released ones: a configuration in their style, and NeMo's tensors for it.

Names and shapes are written down here a second time, from what NeMo creates, and not from the table under test.
"""

import torch
import yaml

from tests.models.checkpoint.nemo_files import CONFIG, CONFIGS, TOKENIZER, WEIGHTS, golden_members, saved

LABELS = 128  # pieces of the golden tokenizer


def members(config_name):
    """Return the files of a checkpoint with the configuration ``configs/<config_name>.yaml`` and random weights."""
    document = yaml.safe_load((CONFIGS / f"{config_name}.yaml").read_text(encoding="utf-8"))
    return {
        CONFIG: yaml.safe_dump(document).encode(),
        WEIGHTS: saved(tensors(document.get("model", document))),
        TOKENIZER: golden_members()[TOKENIZER],
    }


def tensors(document):
    torch.manual_seed(0)
    return {name: value(name, shape) for name, shape in shapes(document).items()}


def shapes(document):
    """Names and shapes of all tensors."""
    encoder = _parameters(document["encoder"])
    shapes = front_end(_parameters(document["preprocessor"])) | (
        _jasper(encoder) if "jasper" in encoder else _conformer(encoder)
    )
    labels = LABELS if "tokenizer" in document else len(_parameters(document["decoder"])["vocabulary"])
    width = encoder["jasper"][-1]["filters"] if "jasper" in encoder else encoder["d_model"]
    if "joint" in document:
        shapes |= _transducer(document, labels, width)
    if "joint" not in document or "aux_ctc" in document:
        prefix = "ctc_decoder" if "joint" in document else "decoder"
        shapes |= affine(f"{prefix}.decoder_layers.0", labels + 1, width, 1)
    return shapes


def _parameters(section):
    """A section before NeMo 1.0 kept what it says below its class."""
    return section.get("params", section)


def value(name, shape):
    if name.endswith("num_batches_tracked"):
        return torch.tensor(7)
    if name.endswith("running_var") or name.startswith("preprocessor."):
        return torch.rand(shape) + 0.5
    values = torch.randn(shape) * 0.2
    if name == "decoder.prediction.embed.weight":
        values[-1] = 0
    return values


def affine(name, *shape, bias=True):
    """Names and shapes of a linear layer, a convolution or a norm."""
    return {f"{name}.weight": shape} | ({f"{name}.bias": shape[:1]} if bias else {})


def front_end(section):
    window = int(section.get("window_size", 0.02) * 16000)
    bank = (1, section.get("features", 64), section["n_fft"] // 2 + 1)
    return {"preprocessor.featurizer.window": (window,), "preprocessor.featurizer.fb": bank}


def _conformer(section):
    shapes = subsampling(section)
    for index in range(section["n_layers"]):
        shapes |= {f"encoder.layers.{index}.{name}": shape for name, shape in layer(section).items()}
    return shapes


def _jasper(section):
    shapes, width, panes = {}, section["feat_in"], []
    for index, block in enumerate(section["jasper"]):
        prefix, out, (kernel,) = f"encoder.encoder.{index}", block["filters"], block["kernel"]
        panes = [*panes, width] if block.get("residual_dense") else []
        place = 0
        for repeat in range(block["repeat"]):
            inner = out if repeat else width
            if block.get("separable"):
                shapes[f"{prefix}.mconv.{place}.conv.weight"] = (inner, 1, kernel)
                place += 1
            shapes[f"{prefix}.mconv.{place}.conv.weight"] = (out, inner, 1 if block.get("separable") else kernel)
            shapes |= _batch_norm(f"{prefix}.mconv.{place + 1}", out)
            place += 4
        if block.get("se"):
            squeezed = out // block.get("se_reduction_ratio", 8)
            shapes[f"{prefix}.mconv.{place - 2}.fc.0.weight"] = (squeezed, out)
            shapes[f"{prefix}.mconv.{place - 2}.fc.2.weight"] = (out, squeezed)
        for pane, inner in enumerate((panes or [width]) if block["residual"] else []):
            shapes[f"{prefix}.res.{pane}.0.conv.weight"] = (out, inner, 1)
            shapes |= _batch_norm(f"{prefix}.res.{pane}.1", out)
        width = out
    return shapes


def _batch_norm(name, width):
    tensors = {f"{name}.{leaf}": (width,) for leaf in ("weight", "bias", "running_mean", "running_var")}
    return tensors | {f"{name}.num_batches_tracked": ()}


def subsampling(section):
    width, mels = section["d_model"], section["feat_in"]
    channels = section.get("subsampling_conv_channels", -1)
    channels = width if channels == -1 else channels
    factor = section.get("subsampling_factor", 4)
    shapes = affine("encoder.pre_encode.conv.0", channels, 1, 3, 3)
    for stage in range(1, factor.bit_length() - 1):
        if section.get("subsampling", "striding") == "striding":
            shapes |= affine(f"encoder.pre_encode.conv.{2 * stage}", channels, channels, 3, 3)
        else:
            shapes |= affine(f"encoder.pre_encode.conv.{3 * stage - 1}", channels, 1, 3, 3)
            shapes |= affine(f"encoder.pre_encode.conv.{3 * stage}", channels, channels, 1, 1)
    return shapes | affine("encoder.pre_encode.out", width, channels * -(-mels // factor))


def layer(section):
    width, bias = section["d_model"], section.get("use_bias", True)
    inner = width * section.get("ff_expansion_factor", 4)
    heads = section.get("n_heads", 4)
    shapes = {}
    for norm in ("norm_feed_forward1", "norm_self_att", "norm_conv", "norm_feed_forward2", "norm_out"):
        shapes |= affine(norm, width)
    for feed_forward in ("feed_forward1", "feed_forward2"):
        shapes |= affine(f"{feed_forward}.linear1", inner, width, bias=bias)
        shapes |= affine(f"{feed_forward}.linear2", width, inner, bias=bias)
    for projection in ("linear_q", "linear_k", "linear_v", "linear_out"):
        shapes |= affine(f"self_attn.{projection}", width, width, bias=bias)
    shapes |= affine("self_attn.linear_pos", width, width, bias=False)
    shapes |= {f"self_attn.pos_bias_{kind}": (heads, width // heads) for kind in "uv"}
    shapes |= affine("conv.pointwise_conv1", 2 * width, width, 1, bias=bias)
    shapes |= affine("conv.depthwise_conv", width, 1, section.get("conv_kernel_size", 31), bias=bias)
    shapes |= affine("conv.pointwise_conv2", width, width, 1, bias=bias)
    return shapes | _batch_norm("conv.batch_norm", width)


def _transducer(document, labels, width):
    network, joint = document["decoder"]["prednet"], document["joint"]
    hidden, joint_width = network["pred_hidden"], joint["jointnet"]["joint_hidden"]
    outputs = labels + 1 + joint.get("num_extra_outputs", 0)
    last = 2 if joint["jointnet"].get("dropout") else 1
    shapes = {"decoder.prediction.embed.weight": (labels + 1, hidden)}
    for layer in range(network["pred_rnn_layers"]):
        for source in ("ih", "hh"):
            shapes[f"decoder.prediction.dec_rnn.lstm.weight_{source}_l{layer}"] = (4 * hidden, hidden)
            shapes[f"decoder.prediction.dec_rnn.lstm.bias_{source}_l{layer}"] = (4 * hidden,)
    shapes |= affine("joint.enc", joint_width, width) | affine("joint.pred", joint_width, hidden)
    return shapes | affine(f"joint.joint_net.{last}", outputs, joint_width)
