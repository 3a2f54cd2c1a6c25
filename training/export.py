"""Writing a trained model as a ``.nemo`` archive, which ``load_model`` and NeMo can read."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from models.checkpoint.nemo.config import parse_nemo_config
from models.checkpoint.nemo.file import CONFIG_FILE, WEIGHTS_FILE
from models.checkpoint.nemo.names import MEL_BANK, TIED, WINDOW, nemo_names
from models.config import ModelConfig, TransducerConfig
from models.errors import CheckpointError
from models.features import LogMelFeatures
from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.errors import RecipeError
from training.export_attention import attention_sections
from training.export_encoder import encoder_section
from training.export_tokenizer import tokenizer_files, tokenizer_section
from training.replaced import replaced
from training.student import MODULES

_NEMO = "nemo.collections.asr"
# Data of which a configuration names none.
_NO_MANIFEST = {"manifest_filepath": None, "defer_setup": True}
# Linear layers of ours that are convolutions over one point in NeMo.
_POINTWISE = ("convolution.gate.weight", "convolution.projection.weight", "ctc.projection.weight")
# Kept in float32: half precision is enough for weights, but ends at 65504 and loses digits under 0.00006, and variances
# may lie beyond either. Positions of an attention decoder are not trained, and stay exact.
_EXACT = ("running_mean", "running_var", "attention_decoder.positions")


def export_nemo(
    path: Path,
    config: ModelConfig,
    vocabulary: TrainingVocabulary,
    state: Mapping[str, Tensor],
    front_end: LogMelFeatures,
    dropout: float,
    aligner: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model, its weights in half precision; an existing file is replaced atomically.

    ``state`` has its weights under the names of ``Network``, ``dropout`` is written for further training, and
    ``aligner`` has the files of its aligner, by name.

    Raises:
        OSError: if it cannot be written.
    """
    weights = io.BytesIO()
    torch.save(_tensors(config, state, front_end), weights)
    document = yaml.safe_dump(nemo_document(config, vocabulary, dropout), sort_keys=False, allow_unicode=True)
    files = {CONFIG_FILE: document.encode(), WEIGHTS_FILE: weights.getvalue(), **tokenizer_files(vocabulary)}
    _write_archive(path, {**(aligner or {}), **files})


def check_export(config: ModelConfig, vocabulary: TrainingVocabulary) -> None:
    """Check before training that a model could be loaded again.

    Raises:
        RecipeError: if it could not; it names what is not supported.
    """
    try:
        parse_nemo_config(nemo_document(config, vocabulary, dropout=0.0))
    except CheckpointError as error:
        raise RecipeError(f"such a model cannot be exported: {error}") from error


def _write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    with replaced(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(content))


def _tensors(config: ModelConfig, state: Mapping[str, Tensor], front_end: LogMelFeatures) -> dict[str, Tensor]:
    """Return weights under NeMo's names and in its shapes, with the buffers of its front end."""
    tensors = {WINDOW: front_end.window.cpu(), MEL_BANK: front_end.mel_bank[None].cpu()}
    for name, value in state.items():
        tensor = value.detach().cpu().contiguous()
        if tensor.is_floating_point():
            tensor = tensor.to(torch.float32 if name.endswith(_EXACT) else torch.float16)
        tensors[_name(name, config)] = tensor[..., None] if name.endswith(_POINTWISE) else tensor
        if name in TIED:
            tensors[TIED[name]] = tensor
    return tensors


def _name(name: str, config: ModelConfig) -> str:
    """Return NeMo's name of a tensor."""
    alone, *others = nemo_names(name, config.encoder)
    # A CTC head has another name beside a transducer; a joint's last layer has another number without dropout.
    return others[0] if config.transducer and others and name.startswith(("ctc.", "joint.output.")) else alone


def nemo_document(config: ModelConfig, vocabulary: TrainingVocabulary, dropout: float) -> dict[str, Any]:
    """Return NeMo's configuration of a model; ``dropout`` is that of its training."""
    pieces = list(vocabulary.tokenizer.pieces)
    if isinstance(vocabulary, AttentionVocabulary):
        heads = attention_sections(config, vocabulary, dropout)
    elif config.transducer is None:
        heads = _ctc(config, pieces)
    else:
        heads = _transducer(config, config.transducer, pieces)
    return {
        "target": f"{_NEMO}.models.{MODULES[config.name]}.{config.name}",
        "sample_rate": config.features.sample_rate,
        "log_prediction": False,
        "preprocessor": _preprocessor(config),
        "encoder": encoder_section(config.encoder, dropout),
        **tokenizer_section(vocabulary),
        **heads,
        **({"train_ds": {**_NO_MANIFEST, "max_duration": config.trained_seconds}} if config.trained_seconds else {}),
        "validation_ds": _NO_MANIFEST,  # NeMo's transcribe() fails without this section
    }


def _ctc(config: ModelConfig, pieces: list[str]) -> dict[str, Any]:
    return {
        "ctc_reduction": "mean_batch",
        "decoder": {
            "_target_": f"{_NEMO}.modules.ConvASRDecoder",
            "feat_in": config.encoder.width,
            "num_classes": len(pieces),
            "vocabulary": pieces,
        },
        "decoding": {"strategy": "greedy_batch"},
    }


def _transducer(config: ModelConfig, transducer: TransducerConfig, pieces: list[str]) -> dict[str, Any]:
    durations = list(transducer.durations)
    ctc = {"aux_ctc": {"ctc_loss_weight": 0.3, "use_cer": False, **_ctc(config, pieces)}} if config.ctc else {}
    return {
        "model_defaults": {
            "enc_hidden": config.encoder.width,
            "pred_hidden": transducer.predictor_width,
            "joint_hidden": transducer.joint_width,
        }
        | ({"tdt_durations": durations, "num_tdt_durations": len(durations)} if durations else {}),
        "decoder": {
            "_target_": f"{_NEMO}.modules.RNNTDecoder",
            "normalization_mode": None,
            "random_state_sampling": False,
            "blank_as_pad": True,
            "prednet": {
                "pred_hidden": transducer.predictor_width,
                "pred_rnn_layers": transducer.predictor_layers,
                "t_max": None,
                "dropout": 0.0,
            },
            "vocab_size": len(pieces),
        },
        "joint": {
            "_target_": f"{_NEMO}.modules.RNNTJoint",
            "log_softmax": None,
            "preserve_memory": False,
            "fuse_loss_wer": True,
            "fused_batch_size": 4,
            "jointnet": {
                "joint_hidden": transducer.joint_width,
                "activation": "relu",
                "dropout": 0.0,
                "encoder_hidden": config.encoder.width,
                "pred_hidden": transducer.predictor_width,
            },
            "num_classes": len(pieces),
            "vocabulary": pieces,
        }
        | ({"num_extra_outputs": len(durations)} if durations else {}),
        "decoding": {
            "model_type": "tdt" if durations else "rnnt",
            "strategy": "greedy_batch",
            "durations": durations,
            "greedy": {"max_symbols": transducer.max_symbols},
        },
        "loss": {"loss_name": "tdt", "tdt_kwargs": {"durations": durations, "sigma": 0.02, "omega": 0.1}}
        if durations
        else {"loss_name": "default"},
        **ctc,
    }


def _preprocessor(config: ModelConfig) -> dict[str, Any]:
    features = config.features
    return {
        "_target_": f"{_NEMO}.modules.AudioToMelSpectrogramPreprocessor",
        "sample_rate": features.sample_rate,
        "normalize": "per_feature",
        "window_size": features.window / features.sample_rate,
        "window_stride": features.window_stride,
        "window": "hann",
        "features": features.mels,
        "n_fft": features.fft_size,
        "lowfreq": features.low_hz,
        "highfreq": features.high_hz,
        "preemph": features.preemphasis,
        "log": True,
        "log_zero_guard_value": features.log_offset,
        "frame_splicing": 1,
        "dither": 0.0,
        "pad_to": 0,
    }
