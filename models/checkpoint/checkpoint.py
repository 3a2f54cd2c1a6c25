"""A checkpoint, independent of the format of its file or folder."""

from dataclasses import dataclass

from torch import Tensor

from models.config import IdentifierConfig, ModelConfig
from models.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model with our names of tensors; when read, on the CPU in the dtype of the file.

    Attributes:
        config: the model's configuration.
        tokenizer: its tokenizer.
        state: the state dict of its network, complete and without other tensors.
        window: the analysis window that it was trained with, [window], or None to compute it.
        mel_bank: the mel bands that it was trained with, [mels, fft_size / 2 + 1], or None to compute them.
        aligner: a second model, with a CTC decoder, that finds the times of the first one's words; None if there is
            none.
    """

    config: ModelConfig
    tokenizer: Tokenizer
    state: dict[str, Tensor]
    window: Tensor | None
    mel_bank: Tensor | None
    aligner: "Checkpoint | None" = None

    def hand_over(self) -> dict[str, Tensor]:
        """Return the state and keep no reference, so that a tensor leaves memory as soon as it is converted."""
        state = dict(self.state)
        self.state.clear()
        return state


@dataclass(frozen=True, slots=True)
class IdentifierCheckpoint:
    """A published language identifier; its fields are those of ``Checkpoint``."""

    config: IdentifierConfig
    state: dict[str, Tensor]
    window: Tensor | None
    mel_bank: Tensor | None
