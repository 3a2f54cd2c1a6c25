"""The model that is trained: a FastConformer with a CTC head, and the front end of NVIDIA's released models."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from models.checkpoint import read_checkpoint
from models.checkpoint.errors import CheckpointError
from models.config import ConformerConfig, FeatureConfig, ModelConfig
from models.encoders.subsampling import Subsampling
from models.heads.ctc import CTCHead
from models.network import Network
from training.errors import RecipeError
from training.recipe import Student
from training.vocabulary import TrainingVocabulary

FRONT_END = FeatureConfig(
    sample_rate=16_000,
    window=400,
    hop=160,
    window_stride=0.01,
    fft_size=512,
    mels=80,
    low_hz=0.0,
    high_hz=8000.0,
    preemphasis=0.97,
    log_offset=2**-24,
)


def student_config(student: Student, vocabulary_size: int) -> ModelConfig:
    """Return what the student is, in the words of models/."""
    encoder = ConformerConfig(
        mels=FRONT_END.mels,
        layers=student.layers,
        width=student.width,
        heads=student.heads,
        feed_forward_width=student.feed_forward_factor * student.width,
        kernel_size=student.kernel_size,
        subsampling="dw_striding",
        subsampling_factor=student.subsampling_factor,
        subsampling_channels=student.subsampling_channels,
        bias=True,
        scale_input=False,
    )
    return ModelConfig("EncDecCTCModelBPE", FRONT_END, encoder, vocabulary_size, ctc=True, transducer=None)


class Float32Subsampling(Subsampling):
    """Subsampling that autocast leaves alone.

    On a CPU, the gradient of a depthwise convolution takes three times as long in bf16 as in float32.
    """

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten a batch, as ``Subsampling`` does."""
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float(), lengths)


class StudentNetwork(Network):
    """The model in training, and what only its training needs.

    Attributes:
        teacher_head: says the labels of a teacher who has others than the student, or None.
        hidden_head: guesses the frames of the teacher's encoder, or None.
    """

    def __init__(self, config: ModelConfig, dropout: float, teacher_labels: int | None, hidden: int) -> None:
        super().__init__(config, dropout)
        assert isinstance(config.encoder, ConformerConfig), "students are FastConformers"
        self.encoder.subsampling = Float32Subsampling(config.encoder)
        self.teacher_head = None if teacher_labels is None else CTCHead(config.encoder.width, teacher_labels)
        self.hidden_head = nn.Linear(config.encoder.width, hidden) if hidden else None


def new_network(
    config: ModelConfig, dropout: float, seed: int, teacher_labels: int | None = None, hidden: int = 0
) -> StudentNetwork:
    """Return a network with random weights, PyTorch's own, the same for the same seed; nothing else draws from it.

    Args:
        config: what the model is.
        dropout: share of each module's output that is dropped.
        seed: of the weights.
        teacher_labels: labels of a teacher who has others than the student, or None.
        hidden: values of the teacher's frames that the student guesses, or 0.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return StudentNetwork(config, dropout, teacher_labels, hidden)


def start_from(network: StudentNetwork, path: Path, config: ModelConfig, vocabulary: TrainingVocabulary) -> None:
    """Give a student the weights of a checkpoint: those of the encoder, and of the head if it has the same labels.

    Raises:
        RecipeError: if it cannot be read, or is of another shape.
    """
    try:
        checkpoint = read_checkpoint(path)
    except CheckpointError as error:
        raise RecipeError(str(error)) from error
    if checkpoint.config.encoder != config.encoder or checkpoint.config.features != config.features:
        raise RecipeError(f"{path} is of another shape than the student")
    same_labels = checkpoint.config.ctc and checkpoint.tokenizer.pieces == vocabulary.tokenizer.pieces
    wanted = ("encoder.", "ctc.") if same_labels else ("encoder.",)
    network.load_state_dict(
        {**network.state_dict(), **{n: v for n, v in checkpoint.state.items() if n.startswith(wanted)}}
    )


def without_teacher_heads(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return of a student's state what the model needs."""
    return {name: value for name, value in state.items() if not is_of_teacher_heads(name)}


def is_of_teacher_heads(name: str) -> bool:
    """Tell whether a weight is of a head that only learning from a teacher needs."""
    return name.startswith(("teacher_head.", "hidden_head."))
