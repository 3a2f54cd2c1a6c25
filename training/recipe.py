"""The recipe of a training run: everything that decides its result, in frozen dataclasses.

Reading a recipe (training/recipe_file.py) checks values by their bounds here, so that other code can rely on them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from training.recipe_augmentation import Augmentation
from training.recipe_bounds import within
from training.recipe_shapes import Convolutional, Language, Student

Precision = Literal["float32", "tf32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The training data."""

    manifests: tuple[Path, ...]  # JSON Lines files, patterns of their names, or folders (training/manifest.py)
    # For each of ``manifests``, how often an epoch has each of its clips, as a factor; None is 1 for all.
    weights: tuple[float, ...] | None = within(1e-3, 1e3, default=None)
    split: str | None = None  # only clips of this split, or None for all
    min_seconds: float = within(0.1, 60, default=0.5)  # shorter takes are left out
    max_seconds: float = within(0.1, 60, default=20.0)  # longer takes are left out
    # Factors of speed; each clip is a take at each of them, and 1 is the clip itself.
    speeds: tuple[float, ...] = within(0.5, 2, default=(1.0,))
    # Clips with more labels in a second are left out, because a short clip with a long transcript needs far more
    # memory. None leaves out none.
    max_labels_per_second: float | None = within(0.1, 1000, default=None)
    # Most takes, as a share of all, whose transcripts have letters or digits without a label.
    unknown_share: float = within(0, 1, default=0.1)

    def __post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.manifests):
            raise ValueError(f"weights has {len(self.weights)} numbers for {len(self.manifests)} manifests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How batches are formed."""

    # Audio and padding in one batch; composed sound, which a teacher is given, has no padding, and nothing below
    # matters to it but ``parts``.
    seconds: float = within(1, 10_000)
    buckets: int = within(1, 100, default=12)  # most lengths of batches; clips of each length have about the same audio
    # Most buckets by labels for clips of similar length. None is 4 for an attention decoder, which computes the padding
    # of labels, and 1 for CTC and transducers, whose losses do not.
    label_buckets: int | None = within(1, 100, default=None)
    # Clips in a batch of each bucket, as `steno train run --probe` finds them; they replace ``seconds``.
    rows: tuple[int, ...] | None = within(1, 100_000, default=None)
    # Batches in a step, whose gradients are summed. Processes share them, and a single process computes them one after
    # the other, so the step is the same on any number of devices (training/ranks.py).
    parts: int = within(1, 10_000, default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dev:
    """The dev set, on which progress is measured."""

    manifest: Path  # a JSON Lines file or a folder, as in the training data; all clips have transcripts
    split: str | None = None  # only clips of this split, or None for all
    every: int = within(1, 1_000_000)  # steps from one measurement to the next
    # Measurements without a lower word error rate after which the run ends; None takes all steps.
    patience: int | None = within(1, 1_000_000, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """The first stage of learning from a teacher: each module learns alone, from the teacher's states."""

    steps: int = within(0, 10_000_000)
    peak: float = within(1e-8, 1)  # its learning rate, after a warm-up as long as the optimizer's; it does not fall
    # Most noise on the input of a module, as a share of the standard deviation of the teacher's state.
    noise: float = within(0, 10, default=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """Composed sound of one length: clips of one voice after another, or fragments of clips."""

    # Seconds of the rows of a batch, each as likely as the others; one may be named twice.
    lengths: tuple[float, ...] = within(1, 60, default=(4.0, 6.0, 8.0, 8.0, 10.0, 12.0, 12.0, 16.0, 20.0))
    # Lowest and highest speed, which changes pitch too.
    speeds: tuple[float, float] = within(0.5, 2, default=(0.78, 1.28))
    # Share of the rows that are pieced together from fragments of 0.4 to 2 s.
    fragments: float = within(0, 1, default=0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """The teacher, whose states a student learns layer by layer (training/distillation.py)."""

    # A Conformer or FastConformer with a CTC head, whose labels, features and frame length the student has: a path or a
    # name on the hub.
    checkpoint: Path
    apart: Apart  # the first stage. In the second, which takes the rest of the recipe's steps, the layers are chained
    composition: Composition = Composition()  # the sound that both get
    # Chance of a row, before each layer of the second stage, to go on from the teacher's state, so that no layer leans
    # on the faults of those before it.
    swap: float = within(0, 1, default=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The loss of a model that learns from transcripts: a weighted sum of those of its heads."""

    ctc: float = within(0, 100, default=1.0)  # weight of CTC; without a transducer it only scales the loss
    # Weight of a CTC head beside an attention decoder, which makes the encoder follow the sound from the first steps on
    # (Kim et al., 2017); the exported model is without it. 0 for none.
    auxiliary_ctc: float = within(0, 100, default=0.0)
    transducer: float = within(0, 100, default=1.0)  # weight of the transducer's loss
    # Additional weight of a transducer's labels over its blanks (Yu et al., 2021).
    fast_emit: float = within(0, 1, default=0.0)
    # Subtracted from the log-probability of each label and blank of a TDT, for longer durations.
    sigma: float = within(0, 1, default=0.02)
    # Share of the steps in which a TDT learns as an RNN-T, without its durations.
    omega: float = within(0, 1, default=0.1)
    label_smoothing: float = within(0, 0.9, default=0.0)  # label smoothing of an attention decoder's cross-entropy
    predict_prompts: bool = True  # whether an attention decoder learns to predict its prompts too, as NeMo's do


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Low-rank adapters of linear layers, which are trained in place of these layers (Hu et al., 2021)."""

    rank: int = within(1, 4096)  # rank of the change of a matrix
    alpha: float = within(1e-3, 1e4, default=16.0)  # the change is multiplied by alpha / rank
    # Patterns of the layers' names, in a Conformer's encoder and in an attention decoder.
    layers: tuple[str, ...] = ("*attention.*", "*feed_forward.*")

    @property
    def scale(self) -> float:
        """The factor of the change."""
        return self.alpha / self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Another learning rate for some weights."""

    weights: tuple[str, ...]  # patterns of their names, or of modules that they are in
    factor: float = within(1e-6, 1e3)  # the factor of their learning rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer and its learning rate: warm-up, a plateau, and a cosine to the end of the run."""

    # AdamW (Loshchilov and Hutter, 2019), or NovoGrad (Ginsburg et al., 2019), with which Jasper and QuartzNet were
    # published (peak 0.01, betas 0.95 and 0.5 or 0.8 and 0.5).
    algorithm: Literal["adamw", "novograd"] = "adamw"
    # ``muon`` for the encoder's matrices (Jordan et al., 2024), which needs fewer steps but takes longer for each; None
    # for the same algorithm as everywhere.
    matrices: Literal["muon"] | None = None
    peak: float = within(1e-8, 1)  # highest learning rate
    warmup: int = within(0, 1_000_000)  # steps up to it
    decay: float = within(0, 1, default=1.0)  # share of the run over which the learning rate falls, at its end
    final: float = within(0, 1, default=0.01)  # learning rate at the end, as a share of the highest
    # Other learning rates for some weights, as factors of the one that is scheduled.
    rates: tuple[Rate, ...] | None = None
    weight_decay: float = within(0, 1, default=1e-3)  # weight decay of matrices; norms and biases are not decayed
    betas: tuple[float, ...] = within(0, 0.99999, default=(0.9, 0.98))  # decay of the two moments
    max_norm: float = within(1e-3, 1e6, default=1.0)  # the gradient is clipped to this norm
    # Decay of the moving average of the weights, which is evaluated and exported.
    ema: float = within(0, 0.999999, default=0.999)

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ValueError("betas must be a list of 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wandb:
    """Weights & Biases, which shows the log (training/loggers.py)."""

    project: str  # the project of the run, which is named after its folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlflow:
    """MLflow, which shows the log (training/loggers.py)."""

    experiment: str  # the experiment of the run; ``MLFLOW_TRACKING_URI`` says where runs are tracked


@dataclass(frozen=True, slots=True, kw_only=True)
class Loggers:
    """Programs that show the log as well; None leaves one out."""

    wandb: Wandb | None = None
    mlflow: Mlflow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A training run."""

    seed: int = within(0, 2**31, default=0)  # seed of weights, order, augmentation and dropout
    steps: int = within(1, 10_000_000)
    data: TrainingData
    batches: Batches
    optimizer: Optimizer
    # Shape of a FastConformer. Without it and ``convolutional``, the model has the shape of ``initial``.
    student: Student | None = None
    convolutional: Convolutional | None = None  # shape of a Jasper, a QuartzNet or a Citrinet
    objective: Objective = Objective()  # the loss without a teacher
    augmentation: Augmentation = field(default_factory=Augmentation)
    teacher: Teacher | None = None  # the teacher, if any; then nothing is learned from transcripts, and clips need none
    # A SentencePiece model or a ``.nemo`` checkpoint with the labels; None for those of the teacher, or of ``initial``
    # if its shape is used. With other labels than ``initial`` has, the weights of labels begin at random.
    vocabulary: Path | None = None
    # The labels, if they are characters, such as `" abcdefghijklmnopqrstuvwxyz'"`; texts are converted to their case,
    # and other characters left out.
    characters: str | None = None
    # The vocabularies of an attention decoder; its special pieces are added.
    languages: tuple[Language, ...] | None = None
    # A checkpoint, by path or name on the hub, with the initial weights of the encoder and of heads of the same shape;
    # None for random weights. Without a shape, the released model itself is trained further: a FastConformer or
    # Conformer with CTC, a transducer, both or an attention decoder, or a Jasper, a QuartzNet or a Citrinet.
    initial: Path | None = None
    # Share of each module's output that is dropped, in the encoder and an attention decoder.
    dropout: float = within(0, 0.9, default=0.1)
    # The statistics of batch norm in training: those of the ``batch``, of the batches of all ``ranks``, or the
    # ``running`` ones, which then do not change. None is ``running`` with ``initial``, whose statistics are of far more
    # speech than a batch, and else ``batch``.
    batch_norm: Literal["batch", "ranks", "running"] | None = None
    # What does not change: patterns of weights' names, or of modules, such as ``encoder.layers.[0-3]``. The batch norm
    # and the dropout of a module that is frozen as a whole do nothing either.
    freeze: tuple[str, ...] | None = None
    adapters: Adapters | None = None  # low-rank adapters, which are trained in place of the layers that they change
    # Whether layers compute their activations again for the gradients, which takes time and saves memory.
    recompute: bool = False
    dev: Dev | None = None
    loggers: Loggers = Loggers()  # programs that show the log as well
    # Precision of matrix products; weights and their updates are always float32. ``tf32`` rounds the factors of float32
    # products on GPUs; with ``float16`` the loss is scaled.
    precision: Precision = "float32"
    report_every: int = within(1, 1_000_000, default=50)  # steps from one line of progress to the next
    save_every: int = within(1, 1_000_000, default=200)  # steps from one state on disk to the next

    def __post_init__(self) -> None:
        if self.student and self.convolutional:
            raise ValueError("student and convolutional exclude each other: one of them says what is trained")
        if self.shape is None and self.initial is None:
            raise ValueError("student, convolutional or initial must be there: they say what is trained")
        self._check_labels()
        if self.recompute and (self.teacher or self.batch_norm == "ranks"):
            other = "teacher" if self.teacher else "batch_norm: ranks"
            raise ValueError(f"recompute and {other} exclude each other")
        for key in ("freeze", "adapters"):
            if getattr(self, key) and self.initial is None:
                raise ValueError(f"{key} is for the weights of initial")
        if self.teacher and not self.teacher.apart.steps <= self.steps:
            raise ValueError(f"teacher.apart.steps must be at most steps, {self.steps}")
        heads = self.student and (self.student.transducer or self.student.attention)
        if self.teacher and (self.student is None or heads or self.freeze or self.adapters):
            raise ValueError("a teacher is for a student with a CTC head alone, all of which is trained")

    def _check_labels(self) -> None:
        """Refuse a recipe with no source of the labels, or with several."""
        named = [name for name in ("vocabulary", "characters", "languages") if getattr(self, name)]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} exclude each other: one of them says what the labels are")
        if self.teacher and named:
            raise ValueError(f"teacher and {named[0]} exclude each other: a student has the labels of its teacher")
        if self.shape and self.teacher is None and not named:
            raise ValueError("teacher, vocabulary, characters or languages must be there: they say what the labels are")
        attends = bool(self.student and self.student.attention)
        if self.languages and self.shape and not attends:
            raise ValueError("languages are for a student with an attention decoder")
        if self.characters and len(set(self.characters)) < len(self.characters):
            raise ValueError("characters must all differ")

    @property
    def shape(self) -> Student | Convolutional | None:
        """The shape of the model, or None for that of ``initial``."""
        return self.student or self.convolutional

    @property
    def has_labels(self) -> bool:
        """Whether the recipe names labels of its own, and does not use those of a teacher or of ``initial``."""
        return bool(self.vocabulary or self.characters or self.languages)
