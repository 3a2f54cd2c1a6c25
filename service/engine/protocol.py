"""What the front process and an engine process say to each other.

Messages are small frozen structs, sent as MessagePack frames over a socket pair. Audio does not travel in
them: the front writes it once into memory that both processes map (`staging`), and a `Batch` says where.

    front  -> engine   Load, Unload, Batch, Stop
    engine -> front    Heartbeat, Downloading, Ready, Result, Failure

An engine answers every `Load` with exactly one `Ready` or `Failure` that names the model, and every `Batch` with
exactly one `Result` or `Failure` that carries the batch's number. It loads one model at a time, in the order it was
asked, and answers batches for those it has meanwhile.
"""

from enum import StrEnum
from typing import Any

import msgspec


class Load(msgspec.Struct, frozen=True, tag=True):
    """A model to load, and the shapes to warm up.

    Attributes:
        model: its id, by which all later messages name it.
        checkpoint: a path, a name on the hub, or "bundled".
        device: "auto", "cpu", "cuda" or "cuda:N"; the same for every model of an engine.
        dtype: "auto", "float32", "bfloat16" or "int8".
        bucket_seconds: upper bounds of the length buckets, ascending.
        batch_seconds: audio-seconds a batch may have, padding included; None lets the engine choose for its device.
        threads: CPU threads that one batch may use; None leaves it to torch.
        attention_context: encoder frames on each side that a Conformer attends to; None leaves it as it was trained.
        beam: texts that the search of an attention decoder keeps; None takes what the checkpoint says.
        language_model: of a CTC decoder: a path, "none", or None for that of the bundled model.
        identity: what the checkpoint is to be, as an engine before this one said it (`Ready`); None: whatever is there.
    """

    model: str
    checkpoint: str
    device: str
    dtype: str
    bucket_seconds: list[float]
    batch_seconds: float | None
    threads: int | None
    attention_context: int | None = None
    beam: int | None = None
    language_model: str | None = None
    identity: str | None = None


class Unload(msgspec.Struct, frozen=True, tag=True):
    """A model whose memory is wanted back; no batch for it is under way."""

    model: str


class Item(msgspec.Struct, frozen=True, array_like=True):
    """One utterance of a batch: where its samples lie in the staging memory."""

    offset: int  # in samples (float32) from the start of the memory
    samples: int


class Prompt(msgspec.Struct, frozen=True, array_like=True):
    """What is asked of a model that takes prompts; the others are asked for nothing in particular.

    Attributes:
        language: ISO 639-1 code of what is spoken; None leaves it to the model.
        target_language: of the text; None for that of the speech.
        punctuation: whether the text has punctuation and capitals.
        timestamps: whether words have times.
    """

    language: str | None = None
    target_language: str | None = None
    punctuation: bool = True
    timestamps: bool = False


NOTHING_ASKED = Prompt()


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Utterances to transcribe together, by which model and which of its decoders, and what is asked for in each."""

    number: int
    model: str
    decoder: str | None  # None: the model's first
    items: list[Item]
    prompts: list[Prompt]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish what runs and exit with status 0."""


class Word(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A word and where it was said, in seconds from the start of its utterance; null where that is not known."""

    text: str
    start: float | None
    end: float | None
    confidence: float | None
    token_span: tuple[int, int]  # the slice of the transcript's tokens that spells it


class Transcript(msgspec.Struct, frozen=True, array_like=True):
    """What the engine heard in one utterance: a hypothesis in plain data."""

    text: str
    tokens: list[int]
    token_confidence: list[float]
    words: list[Word]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A model is loaded and every bucket was run once.

    Attributes:
        model: its id.
        info: what the model is, as `steno info --json` prints it.
        spellings: what each token adds to a text, in UTF-8, by its id.
        sample_rate: of the audio the engine takes, in Hz.
        batch_seconds: padded audio-seconds that a batch may have on this device.
        places: batches the engine takes at once: 1, or 2 where the second is prepared while the first runs.
        rtfx: audio-seconds per second, measured while warming up.
        weight_bytes: what its weights take of the device's memory.
        load_seconds: time that loading the model took.
        warmup_seconds: time the buckets took.
        checkpoint: what it was loaded from: of a name on the hub, the folder of the cache, for which the hub is not
            asked again.
        identity: of the files there; None where they do not change.
        padded_seconds: lengths to which utterances are padded, ascending; none where it is the longest of a batch.
        graphs: how many CUDA graphs there are, by what they do and by state.
    """

    model: str
    info: dict[str, Any]
    spellings: list[bytes]
    sample_rate: int
    batch_seconds: float
    places: int
    rtfx: float
    weight_bytes: int
    load_seconds: float
    warmup_seconds: float
    padded_seconds: list[float] = []
    checkpoint: str | None = None
    identity: str | None = None
    graphs: dict[str, dict[str, int]] = {}


class Result(msgspec.Struct, frozen=True, tag=True):
    """The transcripts of a batch, in the order of its items."""

    number: int
    transcripts: list[Transcript]
    infer_seconds: float
    padded_seconds: float  # count x longest, as the device was given it


class FailureKind(StrEnum):
    """Why an engine could not do what it was asked; decides what the front does next."""

    LOAD = "load"  # this checkpoint cannot be loaded here; the engine has the models that it had
    BATCH = "batch"  # this batch failed, the engine is sound
    OUT_OF_MEMORY = "out_of_memory"  # this batch did not fit, the engine is sound
    DEVICE = "device"  # the device can no longer be trusted: the engine exits


class Failure(msgspec.Struct, frozen=True, tag=True):
    """A batch (`number`), a load (`model`), or the engine itself failed."""

    number: int | None
    kind: FailureKind
    message: str
    model: str | None = None


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """The engine process is alive; sent every second from a thread of its own."""


class Downloading(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint is on its way, so the time for loading it has not begun; sent while bytes arrive."""

    done_bytes: int
    total_bytes: int | None


ToEngine = Load | Unload | Batch | Stop
FromEngine = Heartbeat | Downloading | Ready | Result | Failure
