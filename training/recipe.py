"""Everything about a training run that decides its result, in one frozen record.

Sizes are bounded here, so that nothing else has to ask whether a recipe makes sense.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Precision = Literal["float32", "tf32", "bfloat16", "float16"]


def _within(low: float, high: float, **options: Any) -> Any:  # noqa: ANN401  # a field of any type
    """Return a field whose numbers, or each of them, lie within bounds."""
    return field(metadata={"low": low, "high": high}, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What is trained on.

    Attributes:
        manifests: JSON Lines files, or folders of LibriSpeech (training/manifest.py).
        split: only clips of this split, or None for all.
        min_seconds: shorter clips are left out.
        max_seconds: longer clips are left out.
        speeds: factors at which every clip is heard, each once an epoch; 1 is the clip itself.
        source_balance: power of a source's audio that its share in an epoch is proportional to: 1 takes what there
            is, 0 gives every source the same.
        speaker_balance: the same for the speakers of a source.
        max_labels_per_second: clips with more labels in a second are left out: a short clip with the transcript of a
            long one makes a batch take memory that others leave empty. None leaves out none.
    """

    manifests: tuple[Path, ...]
    split: str | None = None
    min_seconds: float = _within(0.1, 60, default=0.5)
    max_seconds: float = _within(0.1, 60, default=20.0)
    speeds: tuple[float, ...] = _within(0.5, 2, default=(1.0,))
    source_balance: float = _within(0, 1, default=1.0)
    speaker_balance: float = _within(0, 1, default=1.0)
    max_labels_per_second: float | None = _within(0.1, 1000, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How clips are put together.

    Attributes:
        seconds: audio and padding in one batch.
        buckets: lengths that batches may have; each holds about the same audio.
        label_buckets: into how many buckets clips of similar length are divided by their labels. None takes 4 for an
            attention decoder, which computes the padding of labels, and 1 for CTC and transducers, whose losses do not.
        labels: labels and padding in one batch, at most; None sets no bound.
        rows: clips in one batch, bucket by bucket, such as `steno train --probe` finds; in place of ``seconds`` and
            ``labels``.
        parts: batches that make a step: their gradients are put together. The processes that train together share
            them, and one alone computes them in turn, so that the step is the same (training/ranks.py).
    """

    seconds: float = _within(1, 10_000)
    buckets: int = _within(1, 100)
    label_buckets: int | None = _within(1, 100, default=None)
    labels: int | None = _within(1, 1_000_000, default=None)
    rows: tuple[int, ...] | None = _within(1, 100_000, default=None)
    parts: int = _within(1, 10_000, default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dev:
    """What progress is measured on.

    Attributes:
        manifest: a JSON Lines file whose clips have transcripts, or a folder of LibriSpeech.
        split: only clips of this split, or None for all.
        every: steps from one measurement to the next.
        patience: measurements without a lower word error rate after which the run ends; None takes all steps.
    """

    manifest: Path
    split: str | None = None
    every: int = _within(1, 1_000_000)
    patience: int | None = _within(1, 1_000_000, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """The model that is learned from.

    Attributes:
        checkpoint: a model with a CTC head, whose vocabulary becomes the student's unless the recipe names another.
        cache: folder of its posteriors, which any number of runs may share.
        labels: how many of its most probable labels are kept of each frame, besides the blank.
        hidden: whether the frames of its encoder are kept and learned from as well, which takes disk: two bytes for
            each of their values.
        sources: sources whose clips it hears, or None for all; the others are learned from their transcripts alone.
    """

    checkpoint: Path
    cache: Path
    labels: int = _within(1, 64, default=5)
    hidden: bool = False
    sources: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transducer:
    """Shape of a predictor and a joint beside the CTC head.

    Attributes:
        predictor_width: of the label embedding and of the LSTM.
        predictor_layers: of the LSTM.
        joint_width: in which frames and predictions meet.
        durations: frames that a token-and-duration transducer (TDT; Xu et al., 2023) may pass over, ascending; null
            for an RNN-T (Graves, 2012).
    """

    predictor_width: int = _within(1, 4096)
    predictor_layers: int = _within(1, 16, default=1)
    joint_width: int = _within(1, 4096)
    durations: tuple[int, ...] | None = _within(0, 64, default=(0, 1, 2, 3, 4))

    def __post_init__(self) -> None:
        durations = self.durations or (1,)
        if list(durations) != sorted(set(durations)) or not durations[-1]:
            raise ValueError(f"durations {list(durations)} must ascend to one above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Shape of an attention decoder, Canary's (Puvvada et al., 2024, arXiv 2406.19674).

    Attributes:
        width: of a token; encoder frames of another width are projected to it.
        layers: of self-attention, cross-attention and feed-forward.
        heads: attention heads; they divide ``width``.
        feed_forward_factor: inner width of the feed-forward modules in widths.
        positions: the longest sequence, prompt and text together; longer transcripts are left out.
    """

    width: int = _within(2, 4096)
    layers: int = _within(1, 100)
    heads: int = _within(1, 256)
    feed_forward_factor: int = _within(1, 16, default=4)
    positions: int = _within(32, 2**14, default=512)

    def __post_init__(self) -> None:
        if self.width % 2 or self.width % self.heads:
            raise ValueError(f"width {self.width} must be an even multiple of heads, {self.heads}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a convolutional encoder: convolutions over time, each with batch norm, and a way around them.

    Attributes:
        filters: width of its frames.
        kernel_size: frames that a convolution sees, odd.
        repeat: convolutions one after the other.
        stride: frames per frame that the last of them gives.
        dilation: distance of the frames that a convolution sees.
        separable: whether each convolution is a depthwise and a pointwise one (QuartzNet), or one of all (Jasper).
        residual: whether the block's input joins its output.
        dense: whether the inputs of all the dense blocks right before it do so as well (Jasper's dense residual).
        squeeze_ratio: of a squeeze-and-excitation (Citrinet), its width in parts of ``filters``; null for none.
    """

    filters: int = _within(1, 2**14)
    kernel_size: int = _within(1, 1023)
    repeat: int = _within(1, 32, default=1)
    stride: int = _within(1, 64, default=1)
    dilation: int = _within(1, 64, default=1)
    separable: bool = True
    residual: bool = True
    dense: bool = False
    squeeze_ratio: int | None = _within(1, 2**14, default=None)

    def __post_init__(self) -> None:
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        if self.squeeze_ratio and self.squeeze_ratio > self.filters:
            raise ValueError(f"squeeze_ratio {self.squeeze_ratio} must be at most filters, {self.filters}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutional:
    """Shape of a Jasper (Li et al., 2019), a QuartzNet or a Citrinet with CTC.

    Attributes:
        blocks: its blocks in order.
        activation: what follows each convolution.
        mels: height of the features.
    """

    blocks: tuple[Block, ...]
    activation: Literal["relu", "hardtanh", "selu", "swish"] = "relu"
    mels: int = _within(1, 256, default=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language of an attention decoder.

    Attributes:
        code: two letters of ISO 639-1.
        vocabulary: a SentencePiece model of its text.
    """

    code: str
    vocabulary: Path

    def __post_init__(self) -> None:
        if not (len(self.code) == 2 and self.code.isascii() and self.code.islower()):
            raise ValueError(f"code {self.code!r} must be two letters, such as en")


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """Shape of the FastConformer that is trained (Rekesh et al., 2023).

    Attributes:
        layers: Conformer layers.
        width: width of a frame.
        heads: attention heads; they divide ``width``.
        feed_forward_factor: inner width of the feed-forward modules in widths.
        kernel_size: frames that the convolution modules see, odd.
        subsampling_factor: features per encoder frame, a power of two.
        subsampling_channels: channels of the convolutions that shorten the features.
        transducer: what it has beside the CTC head, if anything; then it decodes with that unless told otherwise.
        attention: an attention decoder that it has instead of a CTC head, if any.
    """

    layers: int = _within(1, 100)
    width: int = _within(2, 4096)
    heads: int = _within(1, 256)
    feed_forward_factor: int = _within(1, 16, default=4)
    kernel_size: int = _within(1, 255, default=9)
    subsampling_factor: int = _within(2, 16, default=8)
    subsampling_channels: int = _within(1, 4096, default=128)
    transducer: Transducer | None = None
    attention: Attention | None = None

    def __post_init__(self) -> None:
        if self.transducer and self.attention:
            raise ValueError("transducer and attention exclude each other")
        if self.width % 2 or self.width % self.heads:
            raise ValueError(f"width {self.width} must be an even multiple of heads, {self.heads}")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} must be odd")
        if self.subsampling_factor & (self.subsampling_factor - 1):
            raise ValueError(f"subsampling_factor {self.subsampling_factor} must be a power of two")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is minimised: distillation when there is a teacher, and what transcripts cost CTC and a transducer.

    Attributes:
        ctc: weight of CTC; with neither a teacher nor a transducer it changes the scale of the loss only.
        transducer: weight of the transducer's loss, where the student has one.
        fast_emit: how much more a transducer's labels are pulled for than its blanks (Yu et al., 2021).
        sigma: what is taken from the log-probability of every label and blank of a TDT, so that it jumps farther.
        omega: share of the steps in which a TDT learns as an RNN-T, without its durations.
        hidden: weight of the distance to the frames of the teacher's encoder, where they are kept.
        label_smoothing: of an attention decoder's cross-entropy, the share of a token that the others get.
        predict_prompts: whether an attention decoder learns to predict the tokens of its prompts, too, as NeMo's do.
        label_emphasis: a frame of the teacher weighs 1 + this x the probability that it is no blank.
    """

    ctc: float = _within(0, 100, default=1.0)
    transducer: float = _within(0, 100, default=1.0)
    fast_emit: float = _within(0, 1, default=0.0)
    sigma: float = _within(0, 1, default=0.02)
    omega: float = _within(0, 1, default=0.1)
    hidden: float = _within(0, 100, default=1.0)
    label_smoothing: float = _within(0, 0.9, default=0.0)
    predict_prompts: bool = True
    label_emphasis: float = _within(0, 100, default=4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """What changes the weights, with warm-up, a plateau, and a cosine to the end of the run.

    Attributes:
        algorithm: AdamW (Loshchilov and Hutter, 2019), or NovoGrad (Ginsburg et al., 2019), with which Jasper and
            QuartzNet were published (peak 0.01, betas 0.95 and 0.5 or 0.8 and 0.5).
        matrices: what changes the encoder's matrices: the same, or Muon (Jordan et al., 2024), which learns from fewer
            batches and takes longer for each.
        peak: highest learning rate.
        warmup: steps on the way there.
        decay: share of the run over which the learning rate falls, at its end.
        final: learning rate at the end, as a share of the highest.
        weight_decay: of matrices; norms and biases are not decayed.
        betas: decay of the two moments.
        max_norm: the gradient's norm is cut to this.
        ema: decay of the running mean of the weights, which is what is evaluated and exported.
    """

    algorithm: Literal["adamw", "novograd"] = "adamw"
    matrices: Literal["adamw", "muon"] = "adamw"
    peak: float = _within(1e-8, 1)
    warmup: int = _within(0, 1_000_000)
    decay: float = _within(0, 1, default=1.0)
    final: float = _within(0, 1, default=0.01)
    weight_decay: float = _within(0, 1, default=1e-3)
    betas: tuple[float, ...] = _within(0, 0.99999, default=(0.9, 0.98))
    max_norm: float = _within(1e-3, 1e6, default=1.0)
    ema: float = _within(0, 0.999999, default=0.999)

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ValueError("betas must be a list of 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecAugment:
    """Masks over the features (Park et al., 2019).

    Attributes:
        mel_masks: masks over mel bands of a clip.
        mel_width: bands that such a mask may have at most.
        time_masks: masks over frames of a clip.
        time_share: share of a clip's frames that such a mask may have at most.
    """

    mel_masks: int = _within(0, 10, default=2)
    mel_width: int = _within(0, 100, default=27)
    time_masks: int = _within(0, 50, default=5)
    time_share: float = _within(0, 1, default=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class VocalTract:
    """Voices made higher or lower, without moving anything in time (Jaitly and Hinton, 2013).

    Attributes:
        factors: lowest and highest factor of the frequencies.
    """

    factors: tuple[float, float] = _within(0.5, 2, default=(0.85, 1.18))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise that is added to a share of the clips, of a colour between white and brown.

    Attributes:
        share: share of the clips.
        snr_db: lowest and highest ratio of speech to noise, in dB.
    """

    share: float = _within(0, 1)
    snr_db: tuple[float, float] = _within(-20, 80)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverberation:
    """Rooms that a share of the clips is heard in.

    Attributes:
        share: share of the clips.
        seconds: shortest and longest time in which the sound of a room falls by 60 dB.
        direct_db: lowest and highest ratio of the direct sound to the room's, in dB.
    """

    share: float = _within(0, 1)
    seconds: tuple[float, float] = _within(0.05, 3)
    direct_db: tuple[float, float] = _within(-20, 40, default=(-3.0, 12.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Loudness of the clips.

    Attributes:
        gain_db: lowest and highest gain, in dB.
    """

    gain_db: tuple[float, float] = _within(-60, 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Lossy coding and back.

    Attributes:
        share: of the clips that go through a codec.
    """

    share: float = _within(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """Clips put together anew out of phrases of the same voice, where a teacher says when its words end.

    Attributes:
        share: share of the clips.
        seconds: shortest and longest part that is taken of a clip at a time; parts end with a phrase.
        clips: only voices with at least so many clips.
    """

    share: float = _within(0, 1)
    seconds: tuple[float, float] = _within(0.1, 20, default=(0.6, 3.0))
    clips: int = _within(2, 1000, default=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """What is done to clips before they are learned from; None leaves them as they are."""

    splice: Splice | None = None
    spec_augment: SpecAugment | None = None
    vocal_tract: VocalTract | None = None
    noise: Noise | None = None
    reverberation: Reverberation | None = None
    level: Level | None = None
    codec: Codec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A training run.

    Attributes:
        seed: of weights, order, augmentation and dropout.
        steps: updates of the weights until the run is done.
        data: what is trained on.
        batches: how clips are put together.
        student: shape of the model, if it is a FastConformer; without it and ``convolutional``, that of ``initial``.
        convolutional: shape of the model, if it is a Jasper, a QuartzNet or a Citrinet.
        optimizer: how its weights are changed.
        objective: what is minimised.
        augmentation: what is done to clips.
        teacher: the model that is learned from, if any.
        vocabulary: a SentencePiece model or a ``.nemo`` checkpoint whose pieces are the labels, or None for the
            teacher's, or for those of ``initial`` where its shape is taken. Beside a teacher, a model with labels of
            its own has a second head for the teacher's, which helps the encoder to learn and is not part of what comes
            out.
        characters: labels of a model of characters instead, such as `" abcdefghijklmnopqrstuvwxyz'"`; a text is spelled
            in their case, and what it has beside them is left out.
        languages: the vocabularies of an attention decoder; its special pieces are made here.
        initial: a ``.nemo`` checkpoint from whose weights the model starts, those of its heads too where they have the
            same labels and shape; None starts from random ones. Without a shape, whatever released model it is, is
            trained on as it is: a FastConformer or Conformer with CTC, a transducer, both or an attention decoder, or
            a Jasper, a QuartzNet or a Citrinet.
        dropout: share of each module's output in the encoder that is dropped.
        batch_norm: whose mean and variance batch norm takes in training: those of the ``batch``, of the batches that
            all ``ranks`` have at a time, or the ``running`` ones, which stay as they are. None takes the running ones
            where a model starts from a checkpoint, whose statistics are of far more speech than a batch holds, and the
            batch's elsewhere.
        freeze: what stays as the checkpoint has it: the ``encoder``, its batch norm and dropout included, or nothing.
        dev: what progress is measured on, if anything.
        precision: of matrix products; weights and their updates are float32 always. ``tf32`` rounds the factors of
            float32 products on GPUs; the loss of ``float16`` is scaled.
        report_every: steps from one line of progress to the next.
        save_every: steps from one state on disk to the next.
    """

    seed: int = _within(0, 2**31, default=0)
    steps: int = _within(1, 10_000_000)
    data: TrainingData
    batches: Batches
    optimizer: Optimizer
    student: Student | None = None
    convolutional: Convolutional | None = None
    objective: Objective = Objective()
    augmentation: Augmentation = Augmentation()
    teacher: Teacher | None = None
    vocabulary: Path | None = None
    characters: str | None = None
    languages: tuple[Language, ...] | None = None
    initial: Path | None = None
    dropout: float = _within(0, 0.9, default=0.1)
    batch_norm: Literal["batch", "ranks", "running"] | None = None
    freeze: Literal["encoder"] | None = None
    dev: Dev | None = None
    precision: Precision = "float32"
    report_every: int = _within(1, 1_000_000, default=50)
    save_every: int = _within(1, 1_000_000, default=200)

    def __post_init__(self) -> None:
        if self.student and self.convolutional:
            raise ValueError("student and convolutional exclude each other: one of them says what is trained")
        if self.shape is None and self.initial is None:
            raise ValueError("student, convolutional or initial must be there: they say what is trained")
        self._check_labels()
        if self.freeze and self.initial is None:
            raise ValueError("freeze is for the weights of initial")
        if self.augmentation.splice and self.teacher is None:
            raise ValueError("augmentation.splice needs a teacher")
        attends = self.student and self.student.attention
        if self.labels and not self.objective.ctc and not attends:
            raise ValueError("objective.ctc must be above 0 for a student with labels of its own")

    def _check_labels(self) -> None:
        """Refuse a recipe that says nothing, or several things, about the labels."""
        named = [name for name in ("vocabulary", "characters", "languages") if getattr(self, name)]
        if self.shape is None and named:
            raise ValueError(f"{named[0]} is for a new model: without a shape, the labels are those of initial")
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} exclude each other: one of them says what the labels are")
        if self.shape and self.teacher is None and not named:
            raise ValueError("teacher or vocabulary must be there: they say what the labels are")
        attends = bool(self.student and self.student.attention)
        if self.languages and not attends:
            raise ValueError("languages are for a student with an attention decoder")
        if self.characters and len(set(self.characters)) < len(self.characters):
            raise ValueError("characters has one twice")

    @property
    def shape(self) -> Student | Convolutional | None:
        """What is trained, or None for what ``initial`` is."""
        return self.student or self.convolutional

    @property
    def labels(self) -> bool:
        """Whether the recipe names labels, and does not take a teacher's or those of ``initial``."""
        return bool(self.vocabulary or self.characters or self.languages)
