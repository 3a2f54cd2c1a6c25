"""The model that is trained, the student: one of a recipe's shape, or a released model.

A recipe's shape is a FastConformer with CTC (and a transducer) or with an attention decoder, or a Jasper with CTC. Its
front end is that of NVIDIA's released models.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from models.checkpoint import Checkpoint, read_checkpoint
from models.config import (
    AttentionDecoderConfig,
    BlockConfig,
    ConformerConfig,
    EncoderConfig,
    FeatureConfig,
    JasperConfig,
    ModelConfig,
    PromptConfig,
    TransducerConfig,
)
from models.encoders.subsampling import Subsampling
from models.errors import CheckpointError
from models.heads.ctc import CTCHead
from models.network import Network
from training.attention_vocabulary import TrainingVocabulary
from training.errors import RecipeError
from training.recipe_shapes import Block, Convolutional, Student
from training.state_maps import StateMaps

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
# Samples of the window of Jasper and QuartzNet, 20 ms.
_CONVOLUTIONAL_WINDOW = 320
# Tokens that a sequence, prompt and text together, may have beyond the encoder frames, as in NVIDIA's released models.
_LENGTH_MARGIN = 50
# Most labels in one frame, as in NVIDIA's released models.
_MAX_SYMBOLS = 10
# Weights of which each label has its own.
_OF_LABELS = (
    "ctc.projection.",
    "predictor.embedding.",
    "joint.output.",
    "attention_decoder.embedding.",
    "attention_decoder.output_bias",
)
# Weights that are not exported.
_FOR_TRAINING = ("maps.", "auxiliary_ctc.")
# Fields of a head's configuration that only its search uses.
_OF_SEARCH = {"max_symbols", "length_margin", "beam", "length_penalty"}
# The key of a recipe that names a checkpoint to start from.
INITIAL = "initial"
# NeMo's classes of models that are trained here, and the modules that they are in.
MODULES = {
    "EncDecCTCModel": "ctc_models",
    "EncDecMultiTaskModel": "aed_multitask_models",
    "EncDecCTCModelBPE": "ctc_bpe_models",
    "EncDecRNNTBPEModel": "rnnt_bpe_models",
    "EncDecHybridRNNTCTCBPEModel": "hybrid_rnnt_ctc_bpe_models",
}


def student_config(
    shape: Student | Convolutional, labels: int, *, characters: bool = False, prompts: PromptConfig | None = None
) -> ModelConfig:
    """Return the configuration of a student of a recipe's shape with these labels, characters or pieces.

    Raises:
        RecipeError: if such a model cannot have these labels.
    """
    attends = isinstance(shape, Student) and shape.attention is not None
    if attends != (prompts is not None):
        raise RecipeError(
            "a vocabulary with prompts (languages, or a Canary's) is for an attention decoder, which takes no other",
            "vocabulary",
        )
    if isinstance(shape, Convolutional):
        features = replace(FRONT_END, mels=shape.mels, window=_CONVOLUTIONAL_WINDOW)
        encoder = JasperConfig(shape.mels, tuple(map(_block_config, shape.blocks)), shape.activation)
        return ModelConfig(_ctc_name(characters=characters), features, encoder, labels, ctc=True, transducer=None)
    if shape.transducer and characters:
        raise RecipeError("a transducer has a vocabulary of pieces, and not of characters", "characters")
    return _conformer_config(shape, labels, prompts, _ctc_name(characters=characters))


def pupil_config(config: ModelConfig, teacher: ModelConfig) -> ModelConfig:
    """Return the configuration of a student with the features of its teacher.

    Raises:
        RecipeError: if its frames are not as long as its teacher's.
    """
    own, other = config.encoder, teacher.encoder
    assert isinstance(own, ConformerConfig)
    assert isinstance(other, ConformerConfig)
    if own.subsampling_factor != other.subsampling_factor:
        raise RecipeError(
            f"a frame of the student has {own.subsampling_factor} features, and one of its teacher "
            f"{other.subsampling_factor}",
            "student.subsampling_factor",
        )
    return replace(config, features=teacher.features, encoder=replace(own, mels=teacher.features.mels))


def _ctc_name(*, characters: bool) -> str:
    return "EncDecCTCModel" if characters else "EncDecCTCModelBPE"


def _block_config(block: Block) -> BlockConfig:
    fields = asdict(block)
    ratio = fields.pop("squeeze_ratio")
    return BlockConfig(**fields, squeeze_width=block.filters // ratio if ratio else None)


def _conformer_config(student: Student, labels: int, prompts: PromptConfig | None, ctc_name: str) -> ModelConfig:
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
    if student.attention:
        fields = asdict(student.attention)
        inner = fields.pop("feed_forward_factor") * student.attention.width
        decoder = AttentionDecoderConfig(
            **fields, feed_forward_width=inner, activation="relu", length_margin=_LENGTH_MARGIN
        )
        return ModelConfig(
            "EncDecMultiTaskModel",
            FRONT_END,
            encoder,
            labels,
            ctc=False,
            transducer=None,
            attention=decoder,
            prompts=prompts,
        )
    transducer = None
    if student.transducer:
        fields = asdict(student.transducer) | {"durations": student.transducer.durations or ()}
        transducer = TransducerConfig(**fields, max_symbols=_MAX_SYMBOLS)
    name = "EncDecHybridRNNTCTCBPEModel" if transducer else ctc_name
    return ModelConfig(name, FRONT_END, encoder, labels, ctc=True, transducer=transducer)


class Float32Subsampling(Subsampling):
    """Subsampling in float32, also under autocast.

    On a CPU, the gradient of a depthwise convolution takes three times as long in bf16 as in float32.
    """

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten a batch, as ``Subsampling`` does."""
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float(), lengths)


class StudentNetwork(Network):
    """The model in training.

    Attributes:
        maps: between its states and those of a teacher of another width, or None; only training needs them.
        auxiliary_ctc: a CTC head beside an attention decoder, or None; only training needs it.
    """

    def __init__(
        self,
        config: ModelConfig,
        dropout: float,
        seed: int,
        teacher: EncoderConfig | None = None,
        *,
        has_auxiliary_ctc: bool = False,
    ) -> None:
        """Make a network with random weights, the same ones for the same seed, for a teacher with this encoder."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            super().__init__(config, dropout)
            encoder = config.encoder
            self.maps: StateMaps | None = None
            if isinstance(encoder, ConformerConfig):
                self.encoder.subsampling = Float32Subsampling(encoder)
                if isinstance(teacher, ConformerConfig) and teacher.width != encoder.width:
                    self.maps = StateMaps(min(encoder.layers, teacher.layers) + 1, teacher.width, encoder.width)
            if self.attention_decoder:
                # Embeddings as small as the positions that are added to them; the output layer has the same weights.
                nn.init.normal_(self.attention_decoder.embedding.weight, std=self.attention_decoder.config.width**-0.5)
            # The last, so that other weights begin as without it.
            self.auxiliary_ctc = CTCHead(encoder.width, config.vocabulary_size) if has_auxiliary_ctc else None


def read_named(path: Path, key: str) -> Checkpoint:
    """Read the checkpoint that a key of a recipe names.

    Raises:
        RecipeError: if it cannot be read.
    """
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        raise RecipeError(str(error), key) from error


def check_pace(features: FeatureConfig, path: Path, key: str) -> None:
    """Check that the features of the checkpoint that a key names are as many as are made here.

    Raises:
        RecipeError: if they are not.
    """
    if (features.sample_rate, features.hop) != (FRONT_END.sample_rate, FRONT_END.hop):
        found = f"{features.sample_rate} Hz every {1000 * features.hop / features.sample_rate:g} ms"
        raise RecipeError(f"{path}: features are made of 16 kHz every 10 ms here, and not of {found}", key)


def check_tunable(config: ModelConfig, path: Path) -> None:
    """Check that a released model, the file at ``path``, can be trained further and exported.

    Raises:
        RecipeError: if it cannot; the message says why.
    """
    encoder = config.encoder
    if config.name not in MODULES:
        raise RecipeError(f"{path}: a {config.name} is not trained here; {', '.join(MODULES)} are", INITIAL)
    check_pace(config.features, path, INITIAL)
    if isinstance(encoder, JasperConfig):
        return
    usual = ("convolution_norm", "batch_norm"), ("attention_context", None)
    for what, expected in usual:
        if (found := getattr(encoder, what)) != expected:
            raise RecipeError(f"{path}: encoders with {what} {found} are not trained here", INITIAL)


def relabelled(
    config: ModelConfig, labels: int, *, characters: bool = False, prompts: PromptConfig | None = None
) -> ModelConfig:
    """Return the configuration of a released model with other labels: characters or pieces, maybe with prompts.

    Raises:
        RecipeError: if such a model cannot have them.
    """
    if (config.attention is not None) != (prompts is not None):
        wanted = "languages" if config.attention else "vocabulary or characters"
        raise RecipeError(f"a {config.name} gets other labels by {wanted}", INITIAL)
    name = config.name
    if name in {_ctc_name(characters=True), _ctc_name(characters=False)}:
        name = _ctc_name(characters=characters)
    elif characters:
        raise RecipeError(f"a {name} has a vocabulary of pieces, and not of characters", INITIAL)
    return replace(config, name=name, vocabulary_size=labels, prompts=prompts)


def start_from(
    network: StudentNetwork, checkpoint: Checkpoint, config: ModelConfig, vocabulary: TrainingVocabulary
) -> str:
    """Load the weights of a checkpoint into a student: the encoder, and heads of the same shape.

    From a head with other labels, only the weights that do not belong to labels are loaded.

    Returns:
        A line that names the modules with all, some or none of their weights from the checkpoint.

    Raises:
        RecipeError: if the encoder or the features are of another shape.
    """
    if checkpoint.config.encoder != config.encoder or checkpoint.config.features != config.features:
        raise RecipeError(f"the {checkpoint.config.name} in initial has another shape than the student", INITIAL)
    wanted = ["encoder."]
    wanted += ["ctc."] * (config.ctc and checkpoint.config.ctc)
    if config.attention and _shape(checkpoint.config.attention) == _shape(config.attention):
        wanted += ["attention_decoder."]
    if config.transducer and _shape(checkpoint.config.transducer) == _shape(config.transducer):
        wanted += ["predictor.", "joint."]
    has_same_labels = checkpoint.tokenizer.pieces == vocabulary.tokenizer.pieces
    found = {
        name: value
        for name, value in checkpoint.state.items()
        if name.startswith(tuple(wanted)) and (has_same_labels or not name.startswith(_OF_LABELS))
    }
    own = network.state_dict()
    network.load_state_dict({**own, **found})
    return _taken(of_the_model(own), found)


def _shape(head: AttentionDecoderConfig | TransducerConfig | None) -> dict[str, Any]:
    """Return the part of a head's configuration that its weights are made for; none if there is no head."""
    return {name: value for name, value in asdict(head).items() if name not in _OF_SEARCH} if head else {}


def _taken(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """Return a line that names the modules that have all, some or none of their weights from a checkpoint."""
    modules_by_start: dict[str, list[str]] = {}
    for module in dict.fromkeys(name.split(".")[0] for name in own):
        weights = [name for name in own if name.startswith(f"{module}.")]
        taken = sum(name in found for name in weights)
        how = "kept" if taken == len(weights) else "kept but for its labels" if taken else "new"
        modules_by_start.setdefault(how, []).append(module)
    return "; ".join(f"{how}: {', '.join(modules)}" for how, modules in modules_by_start.items())


def of_the_model(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a student's state without the weights that only training needs."""
    return {name: value for name, value in state.items() if not name.startswith(_FOR_TRAINING)}
