"""NeMo 3 as a peer: its classes, with the weights of a random checkpoint of ours."""

import itertools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.checkpoint import Checkpoint
from models.checkpoint.nemo.names import nemo_names
from training.export import nemo_document
from training.vocabulary import CharacterVocabulary

# The encoder with its CTC head; the transducer is encoder-model.onnx and decoder_joint-model.onnx, in the same folder.
CTC_FILE = "model.onnx"


def nemo_model(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> Any:  # noqa: ANN401  # NeMo is absent when types are checked
    """Return NeMo's model with the checkpoint's weights, prepared as its ``transcribe()`` does."""
    from nemo.collections.asr.models import EncDecHybridRNNTCTCModel
    from omegaconf import OmegaConf

    logging.getLogger("nemo_logger").setLevel(logging.ERROR)
    model = EncDecHybridRNNTCTCModel(OmegaConf.create(_config(checkpoint)))
    known = set(model.state_dict())
    state = {}
    for ours, tensor in checkpoint.state.items():
        if ours.endswith("num_batches_tracked"):
            continue
        names = nemo_names(ours, checkpoint.config.encoder)
        (name,) = [theirs for theirs in names if theirs in known and _is_of(ours, theirs)]
        state[name] = tensor.reshape(model.state_dict()[name].shape)
    missing, unexpected = model.load_state_dict(state, strict=False)
    left = [name for name in missing if "num_batches_tracked" not in name and not name.startswith("preprocessor.")]
    if left or unexpected:
        raise RuntimeError(f"our weights lack {left} of NeMo's model, and it has no place for {unexpected}")
    model.eval()
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    return model.to(device, dtype)  # features are computed in float32 all the same


def engines(model: Any, waveforms: Tensor, lengths: Tensor) -> list[Engine]:  # noqa: ANN401
    """Return NeMo's engines, for CTC and for the transducer; ``search`` has the encoder's frames of these waveforms."""
    name = f"nemo {str(model.dtype).removeprefix('torch.')}"

    @torch.no_grad()
    def encode(waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        given = waveforms.to(model.device), lengths.to(model.device)
        features, frames = model.preprocessor(input_signal=given[0], length=given[1])
        encoded: tuple[Tensor, Tensor] = model.encoder(audio_signal=features, length=frames)
        return encoded

    @torch.no_grad()
    def ctc(encoded: Tensor, frames: Tensor) -> Tokens:
        found = model.ctc_decoding.ctc_decoder_predictions_tensor(
            model.ctc_decoder(encoder_output=encoded), decoder_lengths=frames, return_hypotheses=True
        )
        return [_collapsed(one, len(model.cfg.labels)) for one in found]

    @torch.no_grad()
    def transducer(encoded: Tensor, frames: Tensor) -> Tokens:
        found = model.decoding.rnnt_decoder_predictions_tensor(
            encoder_output=encoded, encoded_lengths=frames, return_hypotheses=True
        )
        return [torch.as_tensor(one.y_sequence).tolist() for one in found]

    given = encode(waveforms, lengths)
    head = "tdt" if model.cfg.decoding.get("durations") else "rnnt"
    return [
        Engine(name, "ctc", lambda *audio: ctc(*encode(*audio)), lambda: ctc(*given)),
        Engine(name, head, lambda *audio: transducer(*encode(*audio)), lambda: transducer(*given)),
    ]


def write_onnx(model: Any, folder: Path) -> None:  # noqa: ANN401
    """Write NeMo's exports for onnxruntime: ``CTC_FILE`` and the two files of the transducer."""
    for head in ("rnnt", "ctc"):  # NeMo puts a prefix before the name for the transducer's files
        model.set_export_config({"decoder_type": head})
        model.export(str(folder / CTC_FILE))


def _is_of(ours: str, theirs: str) -> bool:
    """Return whether a name of NeMo's is that of our tensor: beside a transducer, a CTC head is ``ctc_decoder``."""
    return not ours.startswith("ctc.") or theirs.startswith("ctc_decoder.")


def _collapsed(hypothesis: Any, blank: int) -> list[int]:  # noqa: ANN401
    """Return the tokens of a CTC hypothesis, whose sequence has the label of every frame."""
    labels = torch.as_tensor(hypothesis.y_sequence).tolist()
    return [label for label, _ in itertools.groupby(labels) if label != blank]


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return NeMo's configuration as our export writes it, with labels in place of a tokenizer's files."""
    config = replace(checkpoint.config, name="EncDecHybridRNNTCTCBPEModel")
    labels = list(checkpoint.tokenizer.pieces)
    return nemo_document(config, CharacterVocabulary(labels), dropout=0.0) | {"labels": labels}
