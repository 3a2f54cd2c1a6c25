"""The protocol between the main process, which has the dispatcher, and a worker, which has HTTP.

Messages are small structs, sent as MessagePack frames over a socket pair. Audio is not in them: a worker writes it once
into memory that both processes map (`service.shared_audio`).

A worker numbers what it asks for. The main process answers each `GetOrLoad`, `Accept`, `AcquireRoom`, `UseKey` and
`UseAudio` once, and holds what it granted until the worker sends `End`; each `Grow` once, for which the `End` of the
recording's `Accept` is enough; and each `Transcribe` and `Identify` once, also after an `End`, which withdraws it.

Requests that are not for transcripts are relayed as HTTP (`relay`), on connections that go to the main process as
descriptors (`descriptors`), with the number `RELAYED`.
"""

import msgspec

from models.prompt import Prompt
from models.spoken_language import Probabilities
from models.transcript import Transcript
from service.dispatch.utterance import Lane
from service.engine.protocol import Ready
from service.shared_audio import Item

MetricSample = tuple[str, str, list[tuple[str, str]], float]  # family, name, labels, value
MetricSamples = list[MetricSample]

RELAYED = 0


class Tagged(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message."""


class Listening(Tagged, frozen=True):
    """The worker answers connections."""


class UseModel(Tagged, frozen=True):
    """Requests of the worker begin to use a model, or no longer use it."""

    model: str
    is_used: bool


class ModelsKnown(Tagged, frozen=True):
    """The worker has this version of the models."""

    version: int


class Snapshot(Tagged, frozen=True):
    """The worker's metrics; sent every second, so that it is also a sign of life."""

    samples: MetricSamples


class GetOrLoad(Tagged, frozen=True):
    """Find a model, load it if needed, and hold it."""

    call: int
    name: str


class Accept(Tagged, frozen=True):
    """Ask gate 2 about a recording whose parts follow, in messages of their own."""

    call: int
    model: str
    seconds: float


class Grow(Tagged, frozen=True):
    """Count more audio of an accepted recording that is still arriving."""

    call: int
    recording: int
    seconds: float


class AcquireRoom(Tagged, frozen=True):
    """Ask for room in the window for a part of an accepted recording."""

    call: int
    recording: int
    samples: int


class UseKey(Tagged, frozen=True):
    """Count a request in the limits of its key."""

    call: int
    name: str


class UseAudio(Tagged, frozen=True):
    """Count a recording in the limits of its key."""

    call: int
    name: str
    seconds: float


class PartEntry(msgspec.Struct, frozen=True, array_like=True):
    """A part of a recording; see `service.dispatch.utterance.Part`.

    Attributes:
        place: of its samples in the memory.
        share: seconds of the recording that it answers for.
        caller: who takes turns with others.
        seconds_left: until the answer is needed; None: no deadline.
        lane: the model, and which of its decoders.
        prompt: what is asked for.
        traceparent: of its request, if it is traced.
    """

    place: Item
    share: float
    caller: str
    seconds_left: float | None
    lane: Lane
    prompt: Prompt
    traceparent: str | None


class Transcribe(Tagged, frozen=True):
    """Transcribe a part of an accepted recording, or a short recording whole, which must pass gate 2.

    Attributes:
        call: its number.
        recording: number of the recording's `Accept`; None if it has none.
        recording_seconds: length of the recording.
        part: the part.
    """

    call: int
    recording: int | None
    recording_seconds: float
    part: PartEntry


class Identify(Tagged, frozen=True):
    """Identify the language of a part of an accepted recording; answered by `LanguageProbabilities`.

    Attributes:
        call: its number.
        recording: number of the recording's `Accept`.
        part: the part.
    """

    call: int
    recording: int
    part: PartEntry


class End(Tagged, frozen=True):
    """Withdraw what was asked for, or give back what was granted.

    Attributes:
        call: its number.
        has_failed: whether it came to nothing, so that a key gets its limits back.
    """

    call: int
    has_failed: bool = False


class Start(Tagged, frozen=True):
    """The first message to a worker.

    Attributes:
        settings: the settings, as JSON.
        row: its row of the shared counts.
    """

    settings: bytes
    row: int


class KeyEntry(msgspec.Struct, frozen=True):
    """A key, and the limits of its name if they are its own."""

    name: str
    digest: str
    limits: tuple[int | None, int | None, float | None] | None


class Keys(Tagged, frozen=True):
    """All keys."""

    entries: list[KeyEntry]


class ModelEntry(msgspec.Struct, frozen=True):
    """A model of the catalog."""

    id: str
    checkpoint: str
    ready: Ready | None
    is_leaving: bool
    is_on_demand: bool
    identifies: bool


class Models(Tagged, frozen=True):
    """All models, in order; answered by `ModelsKnown`."""

    version: int
    entries: list[ModelEntry]


class SendSnapshot(Tagged, frozen=True):
    """Send a snapshot now."""


class Finish(Tagged, frozen=True):
    """Finish what is under way, and exit."""


class Granted(Tagged, frozen=True):
    """What was asked for is granted, until `End`.

    Attributes:
        call: its number.
        model: id of the model that was found or loaded; None if there is none of this name.
        levels: what is left of a key's limits: requests and seconds of audio; None where there is no limit.
    """

    call: int
    model: str | None = None
    levels: tuple[float | None, float | None] | None = None


class LimitReached(Tagged, frozen=True):
    """A limit of the key refuses what was asked for.

    Attributes:
        call: its number.
        message: see `RequestError`, as for the next two.
        retry_after: in seconds.
        should_retry: whether clients should try again.
        levels: as in `Granted`.
    """

    call: int
    message: str
    retry_after: int | None
    should_retry: bool | None
    levels: tuple[float | None, float | None]


class Answered(Tagged, frozen=True):
    """The transcript of a part."""

    call: int
    transcript: Transcript
    queue_seconds: float


class LanguageProbabilities(Tagged, frozen=True):
    """The probability of each language in a part."""

    call: int
    probabilities: Probabilities


class Failed(Tagged, frozen=True):
    """What was asked for is refused, or failed; see `errors`."""

    call: int
    kind: str
    message: str
    retry_after: int | None = None


FromWorker = (
    Transcribe
    | Identify
    | End
    | UseModel
    | ModelsKnown
    | Snapshot
    | GetOrLoad
    | Accept
    | Grow
    | AcquireRoom
    | UseKey
    | UseAudio
    | Listening
)
ToWorker = (
    Answered | LanguageProbabilities | Failed | Granted | LimitReached | Models | Keys | SendSnapshot | Finish | Start
)
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
