"""What requests for transcripts need of the process with the dispatcher: gate 1, models, limits of keys, transcripts.

`LocalCore` is that of this process. An HTTP process of its own has another one (service/workers/remote.py).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from service.demand import Demand
from service.dispatch.admission import Admission, Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer, Dispatcher
from service.dispatch.recordings import Options, Recordings
from service.http.keys.access import Access
from service.http.keys.allowance import Allowance
from service.jobs.jobs import Jobs
from service.readiness import Readiness


class Core(Protocol):
    """What requests for transcripts need of the process with the dispatcher."""

    @property
    def gate(self) -> Gate:
        """Gate 1."""

    @property
    def catalog(self) -> Catalog:
        """The models."""

    @property
    def loads_on_demand(self) -> bool:
        """Whether any model may be loaded on demand."""

    def hold_model(self, name: str) -> AbstractAsyncContextManager[ServedModel | None]:
        """Hold a model, after loading it if needed; None if there is none of this name; see `Demand.get_or_load`."""

    def use_key(self, allowance: Allowance, seconds: float | None = None) -> AbstractAsyncContextManager[None]:
        """Count a request in the limits of its key, or the seconds of a recording; see `Allowance`."""

    def transcribe(self, recording: CutRecording, options: Options) -> AsyncGenerator[Answer, None]:
        """Return the answers of a recording's parts; see `Recordings.transcribe`."""


@dataclass(frozen=True, slots=True)
class LocalCore:
    """The core of the process with the dispatcher; all routes that only this process has find it as `app.state.core`.

    There are no jobs if no folder is set for them. `exposition` returns the metrics of all processes, in Prometheus'
    text format.
    """

    dispatcher: Dispatcher
    recordings: Recordings
    demand: Demand
    readiness: Readiness
    access: Access
    jobs: Jobs | None
    exposition: Callable[[], Awaitable[bytes]]

    @property
    def gate(self) -> Admission:
        """Gate 1."""
        return self.dispatcher.admission

    @property
    def catalog(self) -> Catalog:
        """The models."""
        return self.dispatcher.catalog

    @property
    def loads_on_demand(self) -> bool:
        """Whether any model may be loaded on demand."""
        return not self.demand.is_off

    @asynccontextmanager
    async def hold_model(self, name: str) -> AsyncIterator[ServedModel | None]:
        """Hold a model, after loading it if needed."""
        if (model := self.catalog.find_at_hand(name)) is not None:
            with model.use():
                yield model
            return
        async with AsyncExitStack() as held:
            yield await self.demand.get_or_load(name, held)

    @asynccontextmanager
    async def use_key(self, allowance: Allowance, seconds: float | None = None) -> AsyncIterator[None]:
        """Count a request in the limits of its key, or the seconds of a recording."""
        with allowance.enter(self.gate.retry_after) if seconds is None else allowance.audio(seconds):
            yield

    def transcribe(self, recording: CutRecording, options: Options) -> AsyncGenerator[Answer, None]:
        """Return the answers of a recording's parts."""
        return self.recordings.transcribe(recording, options)
