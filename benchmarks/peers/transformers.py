"""transformers' side of the comparison: its Parakeet classes, with the weights of a random checkpoint of ours."""

import importlib
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.checkpoint import Checkpoint
from models.checkpoint.nemo_names import nemo_names
from models.config import ConformerConfig
from models.search.ctc import ctc_greedy

# From NeMo's names to theirs, in this order.
_SPELLINGS = (
    ("encoder.pre_encode.conv.", "encoder.subsampling.layers."),
    ("encoder.pre_encode.out.", "encoder.subsampling.linear."),
    (".self_attn.linear_pos.", ".self_attn.relative_k_proj."),
    (".self_attn.linear_q.", ".self_attn.q_proj."),
    (".self_attn.linear_k.", ".self_attn.k_proj."),
    (".self_attn.linear_v.", ".self_attn.v_proj."),
    (".self_attn.linear_out.", ".self_attn.o_proj."),
    (".self_attn.pos_bias_", ".self_attn.bias_"),
    (".conv.batch_norm.", ".conv.norm."),
    ("decoder.decoder_layers.0.", "ctc_head."),
)


def engine(checkpoint: Checkpoint, dtype: torch.dtype) -> Engine:
    """Return an engine for the CTC head."""
    library: Any = importlib.import_module("transformers")  # half typed, and not there when types are checked
    config = checkpoint.config
    encoder = config.encoder
    assert isinstance(encoder, ConformerConfig)
    model = library.ParakeetForCTC(
        library.ParakeetCTCConfig(
            vocab_size=config.vocabulary_size + 1,
            pad_token_id=config.vocabulary_size,
            encoder_config={
                "hidden_size": encoder.width,
                "num_hidden_layers": encoder.layers,
                "num_attention_heads": encoder.heads,
                "intermediate_size": encoder.feed_forward_width,
                "conv_kernel_size": encoder.kernel_size,
                "subsampling_factor": encoder.subsampling_factor,
                "subsampling_conv_channels": encoder.subsampling_channels,
                "num_mel_bins": encoder.mels,
                "attention_bias": encoder.bias,
                "convolution_bias": encoder.bias,
                "scale_input": encoder.scale_input,
            },
        )
    )
    wanted = model.state_dict()
    state = {}
    for ours, tensor in checkpoint.state.items():
        if ours.startswith(("encoder.", "ctc.")) and not ours.endswith("num_batches_tracked"):
            name = _theirs(nemo_names(ours, encoder)[0])
            state[name] = tensor.reshape(wanted[name].shape)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any("num_batches_tracked" not in name for name in missing):
        raise RuntimeError(f"transformers has other tensors: {missing}, {unexpected}")
    model.eval().to(dtype)
    extractor = library.ParakeetFeatureExtractor(feature_size=encoder.mels)

    @torch.no_grad()
    def transcribe(waveforms: Tensor, lengths: Tensor) -> Tokens:
        audio = [row[:length].numpy() for row, length in zip(waveforms, lengths.tolist(), strict=True)]
        given = extractor(audio, sampling_rate=config.features.sample_rate, return_tensors="pt")
        mask = given["attention_mask"]
        logits = model(input_features=given["input_features"].to(dtype), attention_mask=mask).logits
        frames = -(-mask.sum(dim=1) // encoder.subsampling_factor)
        return [row.tokens for row in ctc_greedy(logits, frames, config.vocabulary_size).rows()]

    return Engine(f"transformers {str(dtype).removeprefix('torch.')}", "ctc", transcribe)


def _theirs(name: str) -> str:
    for nemo, theirs in _SPELLINGS:
        name = name.replace(nemo, theirs)
    return name
