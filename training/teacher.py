"""The teacher model, and its posteriors of each frame."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from audio.samples import Samples
from models.checkpoint import CheckpointError, read_checkpoint
from models.features import LogMelFeatures
from models.network import Network
from training.errors import RecipeError
from training.posteriors import MAX_LABEL, TeacherFrames, record_type
from training.precision import autocast
from training.recipe import Precision
from training.student import FRONT_END

# The key of a recipe that names the teacher.
CHECKPOINT_KEY = "teacher.checkpoint"


class TeacherModel:
    """A CTC model without its search.

    Attributes:
        stride: features per frame.
        width: values that are kept of each frame of its encoder; 0 keeps none.
        labels: labels of a frame that are kept, besides the blank.
    """

    def __init__(self, path: Path, labels: int, device: torch.device, precision: Precision, *, hidden: bool) -> None:
        """Load a teacher.

        Args:
            path: a checkpoint that ``load_model`` reads.
            labels: labels to keep of each frame, besides the blank.
            device: the device.
            precision: precision of its matrix products.
            hidden: whether to keep the frames of its encoder.

        Raises:
            RecipeError: if it cannot be loaded, has no CTC head, another rate or hop than the student, or too few or
                too many labels.
        """
        try:
            checkpoint = read_checkpoint(path)
        except CheckpointError as error:
            raise RecipeError(str(error), CHECKPOINT_KEY) from error
        config = checkpoint.config
        if not config.ctc:
            raise RecipeError(f"{path} has no CTC head, and so no posteriors of frames", CHECKPOINT_KEY)
        if (config.features.sample_rate, config.features.hop) != (FRONT_END.sample_rate, FRONT_END.hop):
            raise RecipeError(
                f"{path} takes audio at {config.features.sample_rate} Hz in hops of {config.features.hop} samples, and "
                f"not at {FRONT_END.sample_rate} Hz in hops of {FRONT_END.hop}",
                CHECKPOINT_KEY,
            )
        if not labels < config.vocabulary_size <= MAX_LABEL:
            supported = f"{labels + 1} to {MAX_LABEL} are supported"
            raise RecipeError(f"{path} has {config.vocabulary_size} labels; {supported}", CHECKPOINT_KEY)
        self.stride = config.encoder.subsampling_factor
        self.width = config.encoder.width if hidden else 0
        self.tokenizer = checkpoint.tokenizer
        self.labels = labels
        self._device = device
        self._precision = precision
        self._front_end = LogMelFeatures(config.features, checkpoint.window, checkpoint.mel_bank).to(device)
        self._network = Network.without_weights(config)
        self._network.load_state_dict(checkpoint.hand_over(), assign=True)
        self._network.fold()
        self._network.to(device, torch.float32).eval().requires_grad_(requires_grad=False)

    @torch.no_grad()
    def posteriors(self, clips: Sequence[Samples]) -> list[TeacherFrames]:
        """Return the posteriors of each frame of each clip, computed in one batch."""
        lengths = torch.tensor([len(samples) for samples in clips])
        waveforms = torch.zeros(len(clips), int(lengths.max()))
        for row, samples in zip(waveforms, clips, strict=True):
            row[: len(samples)] = torch.from_numpy(samples)
        features, frames = self._front_end(waveforms.to(self._device), lengths.to(self._device))
        with autocast(self._device, self._precision):
            encoded, frames = self._network.encoder(features, frames)
            assert self._network.ctc, "checked when it was loaded"
            logits = self._network.ctc(encoded)
        probabilities = log_softmax(logits.float(), dim=-1).exp()
        return self._records(probabilities, encoded.float(), frames.tolist())

    def _records(self, probabilities: Tensor, encoded: Tensor, counts: Sequence[int]) -> list[TeacherFrames]:
        """Return records of ``probabilities`` [batch, frames, labels + 1], the blank last, and of encoder frames."""
        masses, labels = probabilities[:, :, :-1].topk(self.labels, dim=-1)
        records = np.empty(probabilities.shape[:2], dtype=record_type(self.labels, self.width))
        records["blank"] = probabilities[:, :, -1].cpu().numpy()
        records["labels"] = labels.cpu().numpy()
        records["masses"] = masses.cpu().numpy()
        records["hidden"] = encoded[:, :, : self.width].cpu().numpy()
        return [row[:count] for row, count in zip(records, counts, strict=True)]
