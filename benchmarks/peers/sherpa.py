"""sherpa-onnx's side of the comparison: its features, search and text around NeMo's export."""

import importlib
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.config import ModelConfig


def engine(folder: Path, config: ModelConfig, threads: int) -> Engine:
    """Return an engine that runs the CTC model of a folder, as NeMo exports it."""
    onnx: Any = importlib.import_module("onnx")
    library: Any = importlib.import_module("sherpa_onnx")
    described, names = folder / "sherpa.onnx", folder / "tokens.txt"
    model = onnx.load(folder / "model.onnx")
    onnx.helper.set_model_props(
        model,
        {
            "model_type": "EncDecHybridRNNTCTCBPEModel",
            "vocab_size": str(config.vocabulary_size),
            "normalize_type": "per_feature",
            "subsampling_factor": str(config.encoder.subsampling_factor),
        },
    )
    onnx.save(model, described)
    # Pieces are named by their numbers, because tokens are compared.
    pieces = [*(f"t{number}" for number in range(config.vocabulary_size)), "<blk>"]
    names.write_text("".join(f"{name} {number}\n" for number, name in enumerate(pieces)))
    rate = config.features.sample_rate
    recognizer = library.OfflineRecognizer.from_nemo_ctc(
        str(described), str(names), num_threads=threads, sample_rate=rate, feature_dim=config.features.mels
    )

    def transcribe(waveforms: Tensor, lengths: Tensor) -> Tokens:
        streams = []
        for row, length in zip(waveforms, lengths.tolist(), strict=True):
            stream = recognizer.create_stream()
            stream.accept_waveform(rate, row[:length].numpy())
            streams.append(stream)
        recognizer.decode_streams(streams)
        return [[int(token.strip()[1:]) for token in stream.result.tokens] for stream in streams]

    return Engine("sherpa-onnx float32", "ctc", transcribe)
