"""transformers' side of the comparison: its Parakeet classes, with the weights of a random checkpoint of ours."""

import importlib
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.checkpoint import Checkpoint
from models.checkpoint.transformers.names import transformers_names
from models.config import ConformerConfig, ModelConfig
from models.search.ctc import ctc_greedy


def engines(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> list[Engine]:
    """Return an engine for the CTC head, and one for the transducer if this version of transformers has it."""
    library: Any = importlib.import_module("transformers")  # partly typed, and not installed when types are checked
    config = checkpoint.config
    encoder, blank = config.encoder, config.vocabulary_size
    assert isinstance(encoder, ConformerConfig)
    extractor = library.ParakeetFeatureExtractor(feature_size=encoder.mels)
    name = f"transformers {str(dtype).removeprefix('torch.')}"

    def features(waveforms: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        audio = [row[:length].numpy() for row, length in zip(waveforms, lengths.tolist(), strict=True)]
        rate = config.features.sample_rate
        given = extractor(audio, sampling_rate=rate, return_tensors="pt").to(device)  # takes arrays on the CPU only
        return {"input_features": given["input_features"].to(dtype), "attention_mask": given["attention_mask"]}

    ctc = library.ParakeetForCTC(
        library.ParakeetCTCConfig(vocab_size=blank + 1, pad_token_id=blank, encoder_config=_encoder_config(encoder))
    )
    _take_weights(ctc, checkpoint, ("encoder.", "ctc."))
    ctc.eval().to(device, dtype)

    @torch.no_grad()
    def say_ctc(waveforms: Tensor, lengths: Tensor) -> Tokens:
        given = features(waveforms, lengths)
        logits = ctc(**given).logits
        frames = -(-given["attention_mask"].sum(dim=1) // encoder.subsampling_factor)
        return [row.tokens for row in ctc_greedy(logits, frames, blank).rows()]

    found = [Engine(name, "ctc", say_ctc)]
    head = "tdt" if config.transducer and config.transducer.durations else "rnnt"
    if not hasattr(library, f"ParakeetFor{head.upper()}"):
        return found
    transducer = getattr(library, f"ParakeetFor{head.upper()}")(_transducer_config(library, config))
    _take_weights(transducer, checkpoint, ("encoder.", "predictor.", "joint."))
    transducer.eval().to(device, dtype)
    # Scores of durations come after those of tokens; published checkpoints suppress them in their generation settings.
    durations = config.transducer.durations if config.transducer else ()
    no_tokens = [blank + 1 + place for place in range(len(durations))] or None

    @torch.no_grad()
    def say_transducer(waveforms: Tensor, lengths: Tensor) -> Tokens:
        given = features(waveforms, lengths)
        frames = -(-given["attention_mask"].sum(dim=1, keepdim=True) // encoder.subsampling_factor)
        longest = -(-given["attention_mask"].size(1) // encoder.subsampling_factor)
        most = longest * (transducer.config.max_symbols_per_step + 1)
        output = transducer.generate(**given, max_new_tokens=most, suppress_tokens=no_tokens)
        # Rows that have ended go on until all have. A step's duration is how far it advances.
        began = output.durations.cumsum(dim=1) - output.durations
        is_label = (began < frames) & (output.sequences < blank)
        return [row[kept].tolist() for row, kept in zip(output.sequences, is_label, strict=True)]

    return [*found, Engine(name, head, say_transducer)]


def _encoder_config(encoder: ConformerConfig) -> dict[str, Any]:
    return {
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
    }


def _transducer_config(library: Any, config: ModelConfig) -> Any:  # noqa: ANN401
    transducer, blank = config.transducer, config.vocabulary_size
    assert transducer
    assert isinstance(config.encoder, ConformerConfig)
    options = {
        "vocab_size": blank + 1,
        "decoder_hidden_size": transducer.predictor_width,
        "num_decoder_layers": transducer.predictor_layers,
        "hidden_act": "relu",
        "max_symbols_per_step": transducer.max_symbols,
        "pad_token_id": blank,
        "blank_token_id": blank,
        "decoder_start_token_id": blank,
        "encoder_config": _encoder_config(config.encoder),
    }
    if transducer.durations:
        return library.ParakeetTDTConfig(**options, durations=list(transducer.durations))
    return library.ParakeetRNNTConfig(**options)


def _take_weights(model: Any, checkpoint: Checkpoint, parts: tuple[str, ...]) -> None:  # noqa: ANN401
    """Load our tensors whose names begin with ``parts`` into a model of transformers."""
    wanted = model.state_dict()
    state = {}
    for ours, tensor in checkpoint.state.items():
        if ours.startswith(parts) and not ours.endswith("num_batches_tracked"):
            (name,) = transformers_names(ours, checkpoint.config.encoder)
            state[name] = tensor.reshape(wanted[name].shape)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any("num_batches_tracked" not in name for name in missing):
        raise RuntimeError(f"transformers has other tensors: {missing}, {unexpected}")
