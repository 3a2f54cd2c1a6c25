"""onnx-asr's side of the comparison: its features, search and text around NeMo's export, in float32 and 8 bits."""

import importlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.config import ModelConfig

# By head, the name of onnx-asr's class and the files that it reads.
_KINDS = {
    "ctc": ("nemo-conformer-ctc", ("model",)),
    "tdt": ("nemo-conformer-tdt", ("encoder-model", "decoder_joint-model")),
    "rnnt": ("nemo-conformer-rnnt", ("encoder-model", "decoder_joint-model")),
}


def engine(folder: Path, config: ModelConfig, head: str, threads: int, *, eight_bits: bool) -> Engine:
    """Return an engine that runs the files of a folder, as NeMo exports them."""
    library: Any = importlib.import_module("onnx_asr")
    runtime: Any = importlib.import_module("onnxruntime")
    kind, files = _KINDS[head]
    # Pieces named by their numbers, since what is compared is tokens.
    names = [*(f"t{number}" for number in range(config.vocabulary_size)), "<blk>"]
    (folder / "vocab.txt").write_text("".join(f"{name} {number}\n" for number, name in enumerate(names)))
    shape = {"features_size": config.features.mels, "subsampling_factor": config.encoder.subsampling_factor}
    (folder / "config.json").write_text(json.dumps(shape))
    if eight_bits:
        for name in files:
            _round(folder / f"{name}.onnx", folder / f"{name}.int8.onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    model = library.load_model(
        kind,
        folder,
        quantization="int8" if eight_bits else None,
        sess_options=options,
        providers=["CPUExecutionProvider"],
    ).with_timestamps()

    def transcribe(waveforms: Tensor, lengths: Tensor) -> Tokens:
        audio = [row[:length].numpy() for row, length in zip(waveforms, lengths.tolist(), strict=True)]
        found = model.recognize(audio, sample_rate=config.features.sample_rate)
        return [[int(token.strip()[1:]) for token in one.tokens] for one in found]

    return Engine(f"onnx-asr {'int8' if eight_bits else 'float32'}", head, transcribe)


def _round(file: Path, rounded: Path) -> None:
    """Write a file whose products have weights of 8 bits."""
    if not rounded.exists():
        quantization: Any = importlib.import_module("onnxruntime.quantization")
        quantization.quantize_dynamic(file, rounded, op_types_to_quantize=["MatMul"])
