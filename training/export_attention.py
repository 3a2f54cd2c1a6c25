"""NeMo's configuration of an attention decoder: decoder, head, prompts, search and loss."""

from typing import Any

from models.config import AttentionDecoderConfig, ModelConfig
from models.heads.attention_decoder import padded_outputs
from training.attention_vocabulary import AttentionVocabulary

_MODULES = "nemo.collections.asr.modules.transformer"


def attention_sections(config: ModelConfig, vocabulary: AttentionVocabulary, dropout: float) -> dict[str, Any]:
    """Return the sections of a model with an attention decoder and no other head, with its dropout in training."""
    decoder, prompts = config.attention, config.prompts
    assert decoder, "it has an attention decoder"
    assert prompts, "an attention decoder takes prompts"
    width = config.encoder.width
    return {
        "prompt_format": prompts.format,
        "prompt_defaults": [{"role": "user", "slots": _slots(prompts.format, prompts.default_language)}],
        "multitask_metrics_cfg": None,
        "label_smoothing": 0.0,
        "model_defaults": {"asr_enc_hidden": width, "lm_enc_hidden": decoder.width, "lm_dec_hidden": decoder.width},
        "transf_encoder": {
            "_target_": f"{_MODULES}.transformer_encoders.TransformerEncoder",
            "num_layers": 0,
            "hidden_size": decoder.width,
            "inner_size": decoder.feed_forward_width,
            "num_attention_heads": decoder.heads,
            "mask_future": False,
            "pre_ln": True,
            "pre_ln_final_layer_norm": True,
        },
        "transf_decoder": _decoder(decoder, dropout),
        "head": {
            "_target_": "nemo.collections.asr.parts.submodules.token_classifier.TokenClassifier",
            "num_layers": 1,
            "activation": "relu",
            "log_softmax": True,
            "hidden_size": decoder.width,
            "num_classes": padded_outputs(vocabulary.size),
            "dropout": 0.0,
            "use_transformer_init": True,
        },
        "decoding": _decoding(decoder),
        "loss": {
            "_target_": "nemo.collections.common.losses.smoothed_cross_entropy.SmoothedCrossEntropyLoss",
            "label_smoothing": 0.0,
            "pad_id": vocabulary.pad,
        },
    }


def _slots(prompt_format: str, language: str) -> dict[str, str]:
    spoken = {"source_lang": f"<|{language}|>", "target_lang": f"<|{language}|>", "pnc": "<|pnc|>"}
    if prompt_format == "canary":
        return spoken | {"task": "<|transcribe|>"}
    return spoken | {
        "decodercontext": "",
        "emotion": "<|emo:undefined|>",
        "itn": "<|noitn|>",
        "diarize": "<|nodiarize|>",
        "timestamp": "<|notimestamp|>",
    }


def _decoder(decoder: AttentionDecoderConfig, dropout: float) -> dict[str, Any]:
    return {
        "_target_": f"{_MODULES}.get_nemo_transformer",
        "model_name": None,
        "pretrained": False,
        "encoder": None,
        "pre_ln_final_layer_norm": True,
        "config_dict": {
            "max_sequence_length": decoder.positions,
            "num_token_types": 0,
            "embedding_dropout": dropout,
            "learn_positional_encodings": False,
            "hidden_size": decoder.width,
            "inner_size": decoder.feed_forward_width,
            "num_layers": decoder.layers,
            "num_attention_heads": decoder.heads,
            "ffn_dropout": dropout,
            "attn_score_dropout": 0.0,
            "attn_layer_dropout": dropout,
            "hidden_act": decoder.activation,
            "pre_ln": True,
            "vocab_size": None,
        },
    }


def _decoding(decoder: AttentionDecoderConfig) -> dict[str, Any]:
    margin = -1 if decoder.length_margin is None else decoder.length_margin
    return {
        "strategy": "beam",
        "return_best_hypothesis": True,
        "beam": {
            "beam_size": decoder.beam,
            "len_pen": decoder.length_penalty,
            "max_generation_delta": margin,
        },
    }
