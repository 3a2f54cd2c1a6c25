"""The protocol between the front process and an engine process.

Messages are small frozen structs, sent as MessagePack frames over a socket pair. Audio is not in them: the front writes
it once into memory that both processes map (`service.shared_audio`), and a `Batch` says where.

    front  -> engine   Load, Unload, Batch, Stop
    engine -> front    Heartbeat, Downloading, Trying, Barred, Ready, LoadFailure, Result, Failure

An engine answers every `Load` with exactly one `Ready` or `LoadFailure` that names the model, and every `Batch` with
exactly one `Result` or `Failure` that carries the batch's number. It loads one model at a time, in the order of the
messages, and meanwhile answers batches for loaded models.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from service.shared_audio import Item
from transcripts.prompt import Prompt
from transcripts.spoken_language import Probabilities
from transcripts.transcript import FlatTranscripts, Transcript

# Bounds of what an engine says: the front sizes its queue, its memory and its waits by them. None admits NaN.
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
BatchSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e5)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class Load(msgspec.Struct, frozen=True, tag=True):
    """A model to load, and the shapes to warm up.

    Attributes:
        model: its id, which later messages refer to.
        checkpoint: a path, a name on the hub, or "bundled".
        device: "auto", "cpu", "cuda" or "cuda:N"; the same for every model of an engine.
        dtype: "auto", "float32", "tf32", "bfloat16", "float16" or "int8".
        bucket_seconds: upper bounds of the length buckets, ascending.
        batch_seconds: the batch budget in audio-seconds, padding included; None lets the engine choose for its device.
        threads: CPU threads of a batch; with ``shared_threads``, the fewest; None leaves it to torch.
        shared_threads: CPU threads that the engines at work share, at least ``threads`` each; 0: they share none.
        attention_context: encoder frames that a Conformer attends to on each side, or on both (70,6); None is as it was
            trained.
        beam: beam width of an attention decoder; None is that of the checkpoint.
        language_model: language model of a CTC decoder or a transducer: a path, "none", or None for the bundled
            model's own.
        aligner: checkpoint with a CTC decoder that finds the times of an attention decoder's words; None is the
            checkpoint's own, if it has one.
        identity: the identity that the checkpoint must have, from an earlier engine's `Ready`; None: any.
        identifies: whether it is a language identifier, and not a model that transcribes.
        fast_paths: the fast paths that a GPU may take: "auto", "none", or names with commas between them.
        barred: what became of fast paths that an earlier engine has tried in vain.
    """

    model: str
    checkpoint: str
    device: str
    dtype: str
    bucket_seconds: list[float]
    batch_seconds: float | None
    threads: int | None
    shared_threads: int = 0
    attention_context: str | None = None
    beam: int | None = None
    language_model: str | None = None
    aligner: str | None = None
    identity: str | None = None
    identifies: bool = False
    fast_paths: str = "auto"
    barred: dict[str, str] = {}


class Unload(msgspec.Struct, frozen=True, tag=True):
    """A model to unload, if it is loaded. A later batch for it fails; no caller waits for that."""

    model: str


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Utterances to transcribe together.

    Attributes:
        number: its number among the batches of all engines.
        model: id of the model.
        decoder: one of the model's decoders; None: its first.
        prompts: the prompt of each utterance.
        engines: how many engines compute now, this one included.
        items: where the samples of each utterance are; empty until these are in shared memory.
    """

    number: int
    model: str
    decoder: str | None
    prompts: list[Prompt]
    engines: int = 1
    items: list[Item] = []


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish the running batches, and exit with status 0."""


class Vocabulary(msgspec.Struct, frozen=True):
    """The vocabulary of a model: its kind, and how many labels it has."""

    kind: str
    size: int


class Capabilities(msgspec.Struct, frozen=True):
    """What a model can do."""

    translation: bool = False
    word_timestamps: bool = True
    punctuation: bool = False  # whether it writes punctuation
    itn: bool = False  # whether it can be asked to write numbers as people do
    language: bool = False  # whether its encoder can be given the language


class ModelInfo(msgspec.Struct, frozen=True):
    """The part of a model's description (`Model.info`) that the front uses, and where the model runs.

    Attributes:
        family: kind of encoder.
        device: name of the device.
        dtype: dtype of the weights, or tf32.
        parameters: number of parameters; None if it is not known.
        decoders: the decoders; the first is the default.
        languages: ISO 639-1 codes; None if they are not known.
        scripts: scripts of its vocabulary's letters (transcripts/alphabets.py), if it leaves out those that a language
            does not use; empty if it has a prompt for the language.
        default_language: the spoken language where a prompt gives none; None for a model without prompts.
        piece_seconds: length of the parts that long recordings are best cut into; None: as long as utterances may be.
        vocabulary: the vocabulary; None if it is not known.
        capabilities: what it can do.
        language_tags: ISO 639-1 code of a language by the token with which the model names it.
    """

    family: str
    device: str
    dtype: str
    parameters: int | None = None
    decoders: list[str] = []
    languages: list[str] | None = None
    default_language: str | None = None
    scripts: list[str] = []
    piece_seconds: Positive | None = None
    vocabulary: Vocabulary | None = None
    capabilities: Capabilities = Capabilities()
    language_tags: dict[int, str] = {}


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A model is loaded and warmed up.

    Attributes:
        token_bytes: the text of each token, in UTF-8, by id.
        sample_rate: rate of the audio that it takes, in Hz.
        batch_seconds: the batch budget on this device in audio-seconds, padding included.
        slots: batches the engine takes at once: 1, or 2 where the second is prepared while the first runs.
        rtfx: audio-seconds per second, measured while warming up.
        weight_bytes: memory of its weights on the device.
        checkpoint: "bundled", or the path that it was loaded from; for a name on the hub, in the cache.
        identity: identity of the files there; None where they cannot change.
        padded_seconds: lengths that utterances are padded to, ascending; empty if they are padded to the longest.
        graphs: number of CUDA graphs, by purpose and state.
        fast_paths: what became of each fast path of a GPU.
    """

    model: str
    info: ModelInfo
    token_bytes: list[bytes]
    sample_rate: Annotated[int, msgspec.Meta(ge=1_000, le=384_000)]
    batch_seconds: BatchSeconds
    slots: Annotated[int, msgspec.Meta(ge=1, le=8)]
    rtfx: Positive
    weight_bytes: Count
    load_seconds: NotNegative
    warmup_seconds: NotNegative
    padded_seconds: list[BatchSeconds] = []
    checkpoint: str | None = None
    identity: str | None = None
    graphs: dict[str, dict[str, int]] = {}
    fast_paths: dict[str, str] = {}


# Transcripts in arrays or one by one, or the probabilities of languages.
Answers = FlatTranscripts | Sequence[Transcript | Probabilities]


class Result(msgspec.Struct, frozen=True, tag=True):
    """The answers of a batch, in the order of its items: transcripts, or probabilities of languages."""

    number: int
    answers: Answers
    infer_seconds: NotNegative
    padded_seconds: NotNegative  # count x padded length


class FailureKind(StrEnum):
    """The kind of a failure, by which the front decides what to do."""

    BATCH = "batch"  # the batch failed; the engine works
    OUT_OF_MEMORY = "out_of_memory"  # the batch did not fit the device; the engine works
    DEVICE = "device"  # the device can no longer be trusted; the engine exits


class Failure(msgspec.Struct, frozen=True, tag=True):
    """A batch failed, perhaps with its device."""

    number: int
    kind: FailureKind
    message: str


class LoadFailure(msgspec.Struct, frozen=True, tag=True):
    """A model cannot be loaded; others stay loaded."""

    model: str
    message: str
    kind: FailureKind | None = None  # of the error of a batch of its warm-up; None if it failed earlier


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """The engine process is alive; sent every second from a thread of its own."""


class Downloading(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint is being downloaded, so the timeout of loading has not begun; sent while bytes arrive."""

    done_bytes: Count
    total_bytes: Count | None


class Trying(msgspec.Struct, frozen=True, tag=True):
    """A fast path is about to be tried; if the engine ends or is silent before the next, the path is barred."""

    setup: str  # device, driver and versions, which a path's fate depends on
    path: str | None  # None: no trial is under way


class Barred(msgspec.Struct, frozen=True, tag=True):
    """A fast path disagreed with plain operations, or failed; later engines of this setup leave it out."""

    setup: str
    path: str
    state: str


ToEngine = Load | Unload | Batch | Stop
FromEngine = Heartbeat | Downloading | Trying | Barred | Ready | LoadFailure | Result | Failure

to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
from_engine: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
