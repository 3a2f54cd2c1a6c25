"""onnxruntime's side of the comparison: NeMo's export of encoder and CTC head, after our features."""

from pathlib import Path

import torch
from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.config import ModelConfig
from models.features import LogMelFeatures
from models.search.ctc import ctc_greedy


def engine(path: Path, config: ModelConfig, threads: int) -> Engine:
    """Return an engine that runs a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    signal, length = (one.name for one in session.get_inputs())
    front_end = LogMelFeatures(config.features)

    @torch.no_grad()
    def transcribe(waveforms: Tensor, lengths: Tensor) -> Tokens:
        features, frames = front_end(waveforms, lengths)
        outputs = session.run(None, {signal: features.numpy(), length: frames.numpy()})
        encoded = -(-frames // config.encoder.subsampling_factor)
        found = ctc_greedy(torch.from_numpy(outputs[0]), encoded, config.vocabulary_size)
        return [row.tokens for row in found.rows()]

    return Engine("onnxruntime float32", "ctc", transcribe)
