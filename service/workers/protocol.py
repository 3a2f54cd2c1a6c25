"""The protocol between the main process, which has the dispatcher, and a worker, which has HTTP.

Audio is not in messages: a recording in memory is copied once into memory that both processes map
(`service.shared_audio`), and of a longer one the main process gets the file, a descriptor with the message.

    worker -> main process   Snapshot, Relay, HoldModel, UseKey, Transcribe, Cuts, End
    main process -> worker   State, Granted, Answered, Ended, Finish

A worker numbers what it asks for (`call`), from 1. The main process answers each `HoldModel` and `UseKey` with one
`Granted`, and each `Transcribe` with an `Answered` for each part, in order. The last answer to any of them is one
`Ended`: when it was refused, has failed, is done, or was withdrawn or given back by `End`.
"""

import msgspec

from audio.segment.segmenter import Segment
from service.dispatch.dispatcher import Answer
from service.dispatch.recordings import Options
from service.engine.protocol import Ready
from service.keys import Key
from service.shared_audio import Item

# Values of metrics: by family, and then by name and labels.
Series = dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]
Levels = tuple[float | None, float | None]  # what is left of a key's limits: requests, seconds; None: no limit

# Of a `service.dispatch.catalog.ServedModel`: id, checkpoint, ready, is_leaving, is_on_demand, identifies.
ModelEntry = tuple[str, str, Ready | None, bool, bool, bool]


class Tagged(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message."""


class Snapshot(Tagged, frozen=True):
    """The worker's metrics, each second: a sign of life. The first one says that it answers connections."""

    series: Series


class Relay(Tagged, frozen=True):
    """Answer a request, as HTTP, on the connection whose descriptor comes with this message."""


class HoldModel(Tagged, frozen=True):
    """Find a model, load it if needed, and hold it until `End`."""

    call: int
    name: str


class UseKey(Tagged, frozen=True):
    """Count a request in the limits of its key, or the seconds of a recording, until `End`."""

    call: int
    name: str
    seconds: float | None


class Transcribe(Tagged, frozen=True):
    """Transcribe a recording, which must pass gate 2; times count from the arrival of this message."""

    call: int
    options: Options
    rate: int  # samples per second
    samples: int  # number of samples
    is_whole: bool  # whether it is one utterance, and no `Cuts` follow
    item: Item | None  # where it lies in shared memory; None: in the file that comes with this message


class Cuts(Tagged, frozen=True):
    """The next part of a recording, as the detector finds it; None: there are no more."""

    call: int
    segment: Segment | None


class End(Tagged, frozen=True):
    """Withdraw what was asked for, or give back what was granted; to a key, with its limits if the request failed."""

    call: int
    has_failed: bool = False


class State(Tagged, frozen=True):
    """All models, in order, and all keys; sent at the start, and whenever one of them changes."""

    models: list[ModelEntry]
    keys: list[Key]


class Finish(Tagged, frozen=True):
    """Finish what is under way, and exit."""


class Granted(Tagged, frozen=True):
    """What was asked for is granted, until `End`: a model, None if there is none of this name, or the use of a key."""

    call: int
    model: str | None = None
    levels: Levels | None = None


class Answered(Tagged, frozen=True):
    """The answer of a recording's next part, joined and final."""

    call: int
    answer: Answer


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Why something was refused, or failed: the name of an error's class, and its attributes."""

    kind: str
    message: str
    retry_after: int | None = None
    should_retry: bool | None = None


class Ended(Tagged, frozen=True):
    """The last message about a call; the main process no longer reads its samples."""

    call: int
    failure: Failure | None = None
    levels: Levels | None = None


FromWorker = Snapshot | Relay | HoldModel | UseKey | Transcribe | Cuts | End
ToWorker = State | Granted | Answered | Ended | Finish
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
