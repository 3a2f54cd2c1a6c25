"""Steno's side of the comparison."""

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.peers.engine import Engine, Tokens
from models.checkpoint import Checkpoint
from models.model import Model
from models.search.ctc import ctc_greedy


def engines(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, waveforms: Tensor) -> list[Engine]:
    """Return an engine for each decoder, ready for batches of this size; searches are over the given waveforms."""
    own = replace(checkpoint, state=dict(checkpoint.state))  # a copy, because other engines need it too
    model = Model(own, device, dtype)
    model.prepare(*waveforms.shape)
    encoded, frames = model.encode(*model.features(list(waveforms.numpy())))

    def engine(decoder: str) -> Engine:
        def transcribe(waveforms: Tensor, lengths: Tensor) -> Tokens:
            return [one.tokens for one in model.recognize_batch(waveforms, lengths, decoder=decoder).transcripts()]

        def search() -> object:
            # Private calls, because only this benchmark searches without encoding.
            if decoder == "ctc" and (head := model.network.ctc):
                return ctc_greedy(head(encoded), frames, head.blank).rows()
            return model._searches[model.check_decoder(decoder)](encoded, frames, None, None).rows()  # noqa: SLF001

        name = f"steno {str(dtype).removeprefix('torch.')}"
        return Engine(name, decoder, transcribe, search)

    return [engine(decoder) for decoder in model.decoders]
