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
    """A model to load, and the shapes to warm up."""

    model: str  # its id, which later messages refer to
    checkpoint: str  # a path, a name on the hub, or "bundled"
    device: str  # "auto", "cpu", "cuda" or "cuda:N"; the same for every model of an engine
    dtype: str  # "auto", "float32", "tf32", "bfloat16", "float16" or "int8"
    bucket_seconds: list[float]  # upper bounds of the length buckets, ascending
    batch_seconds: float | None  # the batch budget in audio-seconds, padding included; None: the engine chooses
    threads: int | None  # CPU threads of a batch; with ``shared_threads``, the fewest; None leaves it to torch
    shared_threads: int = 0  # CPU threads that the engines at work share, at least ``threads`` each; 0: they share none
    attention_context: str | None = None  # encoder frames on each side, or on both (70,6); None: as it was trained
    beam: int | None = None  # beam width of an attention decoder; None is that of the checkpoint
    language_model: str | None = None  # a path, "none", or None for the bundled model's own
    aligner: str | None = None  # checkpoint that finds times of words; None is the checkpoint's own, if it has one
    identity: str | None = None  # what the checkpoint must have, from an earlier engine's `Ready`; None: any
    identifies: bool = False  # whether it is a language identifier, and not a model that transcribes
    fast_paths: str = "auto"  # the fast paths that a GPU may take: "auto", "none", or names with commas between them
    barred: dict[str, str] = {}  # what became of fast paths that an earlier engine has tried in vain


class Unload(msgspec.Struct, frozen=True, tag=True):
    """A model to unload, if it is loaded. A later batch for it fails; no caller waits for that."""

    model: str


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Utterances to transcribe together."""

    number: int  # its number among the batches of all engines
    model: str  # id of the model
    decoder: str | None  # one of the model's decoders; None: its first
    prompts: list[Prompt]
    engines: int = 1  # how many engines compute now, this one included
    items: list[Item] = []  # where the samples of each utterance are; empty until these are in shared memory


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
    """The part of a model's description (`Model.info`) that the front uses, and where the model runs."""

    family: str
    device: str  # name of the device
    dtype: str  # dtype of the weights, or tf32
    parameters: int | None = None
    decoders: list[str] = []  # the decoders; the first is the default
    languages: list[str] | None = None  # ISO 639-1 codes; None if they are not known
    default_language: str | None = None  # where a prompt gives none; None for a model without prompts
    # Scripts of its vocabulary's letters (transcripts/alphabets.py), if it leaves out those that a language does not
    # use; empty if it has a prompt for the language.
    scripts: list[str] = []
    piece_seconds: Positive | None = None  # into which long recordings are best cut; None: as long as may be
    vocabulary: Vocabulary | None = None
    capabilities: Capabilities = Capabilities()
    language_tags: dict[int, str] = {}  # ISO 639-1 code of a language by the token with which the model names it


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A model is loaded and warmed up."""

    model: str
    info: ModelInfo
    token_bytes: list[bytes]  # the text of each token, in UTF-8, by id
    sample_rate: Annotated[int, msgspec.Meta(ge=1_000, le=384_000)]  # rate of the audio that it takes, in Hz
    batch_seconds: BatchSeconds  # the batch budget on this device in audio-seconds, padding included
    # Batches at once: 1, or 2 where the second is prepared while the first runs.
    slots: Annotated[int, msgspec.Meta(ge=1, le=8)]
    rtfx: Positive  # audio-seconds per second, measured while warming up
    weight_bytes: Count  # memory of its weights on the device
    load_seconds: NotNegative
    warmup_seconds: NotNegative
    padded_seconds: list[BatchSeconds] = []  # that utterances are padded to, ascending; none: that of the longest
    checkpoint: str | None = None  # "bundled", or the path that it was loaded from; for a name on the hub, in the cache
    identity: str | None = None  # identity of the files there; None where they cannot change
    graphs: dict[str, dict[str, int]] = {}  # number of CUDA graphs, by purpose and state
    fast_paths: dict[str, str] = {}  # what became of each fast path of a GPU


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
