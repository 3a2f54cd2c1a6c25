"""A training run: the objects of its recipe, and its progress."""

import dataclasses
import json
import math
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoint import Checkpoint, CheckpointError
from models.checkpoint.nemo.file import aligner_files
from models.config import ModelConfig
from models.features import LogMelFeatures
from training.adapters import add_adapters, merged
from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.augment import Augmenter
from training.batch import Batch
from training.buckets import buckets_of_equal_audio
from training.composition import Composer
from training.ema import WeightAverage
from training.errors import ManifestError, RecipeError, ResumeError, TrainingError
from training.examples import Examples
from training.export import check_export, export_nemo
from training.forecast import forecast
from training.loader import load
from training.manifest import read_manifest
from training.mode import TrainingMode
from training.optimizer import new_optimizer
from training.precision import set_products
from training.ranks import Ranks
from training.recipe import Dev, Recipe
from training.recompute import recompute_layers
from training.recordings import Recordings
from training.sampler import BucketSampler, Position
from training.snapshot import STATE, check_identity, read_snapshot, write_snapshot
from training.student import (
    INITIAL,
    StudentNetwork,
    check_tunable,
    of_the_model,
    pupil_config,
    read_named,
    relabelled,
    start_from,
    student_config,
)
from training.take_index import TakeIndex, take_index
from training.takes import Take
from training.teacher import TeacherModel, read_teacher
from training.transcripts import labels_of
from training.vocabulary import CharacterVocabulary
from training.vocabulary_file import read_languages, read_vocabulary

# Parts of a recipe that may change when a run is resumed: evaluation, reports, saving, and the length of the run, to
# which the learning rate then adapts.
_CHANGEABLE = ("dev", "loggers", "report_every", "save_every", "steps")
# The folder of the index of its takes, in the run's folder.
_INDEX = "takes"
# Steps without an overflow after which float16's loss scale is doubled.
_GROWTH_STEPS = 1000
# Buckets by labels for each length, if a decoder computes the padding of labels.
_LABEL_BUCKETS = 4


class Run:
    """The objects that the training loop uses.

    Attributes:
        own_parts: this process's parts of a step.
        loss_scale: scales the loss, so that small gradients do not vanish in float16 (Micikevicius et al., 2018, arXiv
            1710.03740); disabled in other precisions.
        sampler: draws the clips of each batch; with a teacher, sound is composed instead.
        survey: lines about the training data and what is left out.
        position: the position of the next batch.
    """

    def __init__(self, recipe: Recipe, folder: Path, device: torch.device, ranks: Ranks | None = None) -> None:
        """Prepare a run at its first step.

        Raises:
            TrainingError: if something that the recipe names cannot be used.
        """
        self.recipe = recipe
        self.folder = folder
        self.device = device
        self.ranks = ranks or Ranks()
        self.own_parts = self.ranks.share(recipe.batches.parts)
        self.loss_scale = torch.amp.GradScaler(
            device.type, growth_interval=_GROWTH_STEPS, enabled=recipe.precision == "float16"
        )
        set_products(recipe.precision)
        self.dev = _dev_takes(recipe.dev) if recipe.dev else []
        augmenter = Augmenter(recipe.augmentation)
        initial = _initial(recipe)
        teacher = read_teacher(recipe.teacher.checkpoint) if recipe.teacher else None
        self.vocabulary = _vocabulary(recipe)
        config = _config(recipe, initial, self.vocabulary, teacher)
        with self.ranks.one_after_the_first():
            self.takes = take_index(folder / _INDEX, recipe, self.vocabulary, config)
        self.config = _with_trained_length(config, recipe, self.takes)
        check_export(self.config, self.vocabulary)
        self.network = StudentNetwork(
            self.config,
            recipe.dropout,
            recipe.seed,
            teacher.config.encoder if teacher else None,
            has_auxiliary_ctc=recipe.objective.auxiliary_ctc > 0,
        ).to(device)
        taken = start_from(self.network, initial, self.config, self.vocabulary) if initial else None
        source = teacher or (None if recipe.shape else initial)
        own = (source.window, source.mel_bank) if source else ()
        self.front_end = LogMelFeatures(self.config.features, *own).to(device)
        # The checkpoint with the aligner of the model that is tuned, if it has one.
        self._aligned = recipe.initial if initial and initial.aligner and not recipe.shape else None
        if recipe.adapters:
            add_adapters(self.network, recipe.adapters, recipe.seed)
        if recipe.recompute:
            recompute_layers(self.network)
        self.mode = TrainingMode(self.network, recipe)
        if self.network.ctc and not teacher and not recipe.objective.ctc:
            self.network.ctc.requires_grad_(requires_grad=False)  # it is not part of the loss
        _check_auxiliary_ctc(recipe, self.config, self.mode)
        self.optimizer = new_optimizer(self.network, recipe.optimizer)
        self.average = WeightAverage(self.network, recipe.optimizer.ema)
        self.examples = Examples(self.takes, self.vocabulary, augmenter, recipe.seed, self.config)
        for take in self.dev:
            labels_of(take.clip, "", self.vocabulary)  # checks that the vocabulary has its language
        self.sampler = _sampler(self.takes, recipe, attends=self.config.attention is not None)
        self.survey = [*self.takes.survey, *(one.survey for one in augmenter.recordings)]
        self.survey += [f"weights of {recipe.initial.name} {taken}"] if recipe.initial and taken else []
        if not teacher:
            self.survey.append(forecast(self.sampler, self.takes.seconds, self.takes.labels))
        self.teacher = TeacherModel(teacher, device, recipe.precision) if teacher else None
        self.step = 0
        self.position = Position()
        self.audio_seconds = 0.0
        self._augmenter = augmenter
        self._identity = _identity(recipe, self.takes, augmenter.recordings)

    @property
    def finished(self) -> bool:
        """Whether every step of the recipe is done."""
        return self.step >= self.recipe.steps

    @property
    def parameters(self) -> int:
        """Number of the student's weights, without those used only in training."""
        return sum(value.numel() for value in self._exported(dict(self.network.named_parameters())).values())

    @property
    def averaged(self) -> dict[str, Tensor]:
        """The averaged weights of the model as it is exported."""
        return self._exported(self.average.state)

    def _exported(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return merged(of_the_model(state), self.recipe.adapters)

    def batches(self) -> Generator[Batch, None, None]:
        """Yield this process's parts of each step without end, from the step that comes next; pinned on a GPU."""
        pins = self.device.type == "cuda"
        if not self.teacher:
            return load(self.sampler, self.examples, self.position, self.own_parts, pins=pins)
        composer = Composer(self.takes, self.recipe, self.config.features.mels, self._augmenter)
        return composer.batches(self.position, self.own_parts, pins=pins)

    def save(self) -> None:
        """Save the state, in the first process.

        Raises:
            TrainingError: if it cannot be written.
        """
        if not self.ranks.is_first:
            return
        state = {
            "identity": self._identity,
            "step": self.step,
            **dataclasses.asdict(self.position),
            "audio_seconds": self.audio_seconds,
            "network": dict(self.network.state_dict()),
            "average": self.average.state,
            "optimizer": self.optimizer.state_dict(),
            "loss_scale": self.loss_scale.state_dict(),
        }
        write_snapshot(self.folder / STATE, state)

    def resume(self) -> None:
        """Restore the saved state.

        Raises:
            ResumeError: if there is none that can be read, or it is of another recipe or other clips.
        """
        path = self.folder / STATE
        state = read_snapshot(path, self.device)
        try:
            check_identity(path, json.loads(state["identity"]), json.loads(self._identity))
            self.network.load_state_dict(state["network"])
            self.average.restore(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.loss_scale.load_state_dict(state["loss_scale"])
            self.step, self.audio_seconds = state["step"], state["audio_seconds"]
            self.position = Position(state["epoch"], state["batch"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResumeError(f"{path} is damaged: its weights are not those of this run") from error

    def export(self, path: Path) -> None:
        """Write the averaged weights as a ``.nemo`` archive, with the aligner of the model that is tuned.

        Raises:
            TrainingError: if it cannot be written.
        """
        try:
            # Read only now, because it may be as large as the model.
            aligner = aligner_files(self._aligned) if self._aligned else None
            export_nemo(path, self.config, self.vocabulary, self.averaged, self.front_end, self.recipe.dropout, aligner)
        except OSError as error:
            raise TrainingError(f"{path} cannot be written: {error.strerror}") from error
        except CheckpointError as error:
            raise TrainingError(f"{path} cannot be written: {error}") from error


def _dev_takes(dev: Dev) -> list[Take]:
    clips = read_manifest(dev.manifest, dev.split)
    without = next((clip for clip in clips if clip.text is None), None)
    if without:
        raise ManifestError(f"{without} has no transcript to measure progress on")
    return [Take(clip) for clip in clips]


def _vocabulary(recipe: Recipe) -> TrainingVocabulary:
    if recipe.characters:
        return CharacterVocabulary(recipe.characters)
    if recipe.languages:
        return read_languages(recipe.languages)
    of_teacher = recipe.teacher.checkpoint if recipe.teacher else None
    path = recipe.vocabulary or (of_teacher if recipe.shape else recipe.initial)
    assert path, "a recipe has one of them"
    return read_vocabulary(path)


def _initial(recipe: Recipe) -> Checkpoint | None:
    """Return the checkpoint that the model starts from, if any; one that is tuned must be of a kind that can be."""
    if not recipe.initial:
        return None
    checkpoint = read_named(recipe.initial, INITIAL)
    if not recipe.shape:
        check_tunable(checkpoint.config, recipe.initial)
    return checkpoint


def _config(
    recipe: Recipe, initial: Checkpoint | None, vocabulary: TrainingVocabulary, teacher: Checkpoint | None
) -> ModelConfig:
    """Return the configuration of the recipe's shape, or else that of the released model that it tunes."""
    size, characters = vocabulary.size, isinstance(vocabulary, CharacterVocabulary)
    prompts = vocabulary.prompts if isinstance(vocabulary, AttentionVocabulary) else None
    if recipe.shape:
        config = student_config(recipe.shape, size, characters=characters, prompts=prompts)
        if teacher:
            return pupil_config(config, teacher.config)
    else:
        assert initial, "a recipe has a shape or an initial checkpoint"
        config = initial.config
        if recipe.has_labels:
            config = relabelled(config, size, characters=characters, prompts=prompts)
    has_idle_transducer = config.transducer and not recipe.objective.transducer
    if has_idle_transducer and (recipe.has_labels or not recipe.initial or not config.ctc):
        key = "objective.transducer"
        raise RecipeError(f"{key} must be above 0 for a transducer that is new or the only head", key)
    learns_otherwise = not recipe.has_labels and config.transducer and not has_idle_transducer
    if config.ctc and not recipe.objective.ctc and not learns_otherwise:
        raise RecipeError("objective.ctc must be above 0 for a CTC head that nothing else trains", "objective.ctc")
    return config


def _check_auxiliary_ctc(recipe: Recipe, config: ModelConfig, mode: TrainingMode) -> None:
    """Refuse an auxiliary CTC head that would teach an encoder nothing."""
    key = "objective.auxiliary_ctc"
    if recipe.objective.auxiliary_ctc and not config.attention:
        raise RecipeError(f"{key} is for a model with an attention decoder, and not for {config.name}", key)
    if recipe.objective.auxiliary_ctc and mode.frozen:
        raise RecipeError(f"{key} and freeze exclude each other: the head is to teach the encoder", key)


def _with_trained_length(config: ModelConfig, recipe: Recipe, takes: TakeIndex) -> ModelConfig:
    """Return the configuration with the longest length of its training clips; a tuned model's does not shrink."""
    composed = recipe.teacher and max(recipe.teacher.composition.lengths)
    longest = composed or round(float(takes.seconds.max()), 1)
    if recipe.shape or longest > (config.piece_seconds or math.inf):
        return dataclasses.replace(config, trained_seconds=longest)
    return config


def _sampler(takes: TakeIndex, recipe: Recipe, *, attends: bool) -> BucketSampler:
    seconds, labels, batches = takes.seconds, takes.labels, recipe.batches
    label_buckets = batches.label_buckets or (_LABEL_BUCKETS if attends else 1)
    buckets = buckets_of_equal_audio(seconds, batches.buckets, batches.seconds, labels, label_buckets)
    if batches.rows and len(batches.rows) != len(buckets.all):
        raise RecipeError(
            f"batches.rows has {len(batches.rows)} numbers; there are {len(buckets.all)} buckets", "batches.rows"
        )
    buckets = dataclasses.replace(buckets, counts=batches.rows)
    return BucketSampler(seconds, takes.weights(recipe.data.weights), buckets, recipe.seed, labels, batches.parts)


def _identity(recipe: Recipe, takes: TakeIndex, recordings: Sequence[Recordings]) -> str:
    """Return what must not change when a run is resumed: its recipe without folders, its takes and its recordings."""
    kept = {key: value for key, value in dataclasses.asdict(recipe).items() if key not in _CHANGEABLE}
    kept |= {"clips": takes.digest, "recordings": [one.digest for one in recordings]}
    return json.dumps(kept, default=lambda path: path.name)
