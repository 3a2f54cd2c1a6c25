"""The teacher: a Conformer with CTC, whose states a student learns."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from models.checkpoint import Checkpoint
from models.comparison import compare_kernels
from models.config import ConformerConfig
from models.encoders.conformer import ConformerEncoder, ConformerLayer
from models.encoders.padding import Padding
from models.network import Network
from training.errors import RecipeError
from training.layer_states import LayerStates, input_frames, layer_states
from training.precision import autocast
from training.recipe import Precision
from training.student import check_pace, read_named

# The key of a recipe that names the teacher.
_CHECKPOINT_KEY = "teacher.checkpoint"


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a teacher computes of a batch without padding, float32."""

    layers: list[LayerStates]  # the states of each layer
    log_probabilities: Tensor  # of labels and blank, [batch, frames, labels + 1], the blank last


def read_teacher(path: Path) -> Checkpoint:
    """Read a teacher.

    Raises:
        RecipeError: if it cannot be read, or is not a model from which a student can learn layer by layer.
    """
    checkpoint = read_named(path, _CHECKPOINT_KEY)
    config = checkpoint.config
    if not isinstance(config.encoder, ConformerConfig):
        raise RecipeError(f"{path} is a {config.name} without the layers of a Conformer", _CHECKPOINT_KEY)
    if not config.ctc:
        raise RecipeError(f"{path} has no CTC head, and so no posteriors of frames", _CHECKPOINT_KEY)
    check_pace(config.features, path, _CHECKPOINT_KEY)
    return checkpoint


class TeacherModel:
    """A Conformer with CTC that shows its states."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, precision: Precision) -> None:
        """Take over the weights of a checkpoint that ``read_teacher`` returned; ``precision`` is of its products."""
        self._device, self._precision = device, precision
        network = Network.without_weights(checkpoint.config)
        network.load_state_dict(checkpoint.hand_over(), assign=True)
        network.fold()
        # A teacher has no gradients, so its weights can be in half precision themselves.
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        network.to(device, self._dtype).eval().requires_grad_(requires_grad=False)
        if device.type == "cpu":
            network.pack(self._dtype)
        assert isinstance(network.encoder, ConformerEncoder), "checked when it was read"
        assert network.ctc, "checked when it was read"
        self._encoder, self._head = network.encoder, network.ctc
        with autocast(device, precision):
            compare_kernels(self._encoder, None, device, self._dtype)

    @torch.no_grad()
    def teach(self, features: Tensor, lengths: Tensor) -> Lesson:
        """Return the states of features [batch, mels, frames] without padding, and the posteriors."""
        with autocast(self._device, self._precision):
            frames, lengths, positions = input_frames(self._encoder, features.to(self._dtype), lengths)
            padding = Padding(lengths, frames.size(1))
            layers = []
            for layer in self._encoder.layers:
                assert isinstance(layer, ConformerLayer)
                layers.append(layer_states(layer, frames, positions, padding))
                frames = layers[-1].output
            logits = self._head(frames)
        log_probabilities = log_softmax(logits.float(), dim=-1)
        return Lesson([layer.float() for layer in layers], log_probabilities)
