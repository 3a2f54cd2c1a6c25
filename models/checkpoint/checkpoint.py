"""What a checkpoint is, whatever file or folder it came from."""

from dataclasses import dataclass

from torch import Tensor

from models.config import ModelConfig
from models.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as published, under our names, on the CPU, in the dtype of the file.

    Attributes:
        config: what the model is.
        tokenizer: its vocabulary.
        state: the state of its network, every tensor of it and no other.
        window: the analysis window that it was trained with, [window], or None to compute it.
        mel_bank: the mel bands that it was trained with, [mels, fft_size / 2 + 1], or None to compute them.
    """

    config: ModelConfig
    tokenizer: Tokenizer
    state: dict[str, Tensor]
    window: Tensor | None
    mel_bank: Tensor | None

    def hand_over(self) -> dict[str, Tensor]:
        """Return the state and keep none of it, so that what a model replaces leaves memory at once."""
        state = dict(self.state)
        self.state.clear()
        return state
