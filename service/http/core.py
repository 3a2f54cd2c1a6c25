"""What requests for transcripts need of the process with the dispatcher: gate 1, models, limits of keys, transcripts.

`LocalCore` is that of this process. An HTTP process of its own has another one (service/workers/remote.py).
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from service.demand import Demand
from service.dispatch.admission import Admission, Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.recordings import Options, Recordings
from service.http.keys.allowance import Allowance


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

    def use_key(self, allowance: Allowance) -> AbstractAsyncContextManager[None]:
        """Count a request in the limits of its key; see `Allowance.enter`."""

    def use_audio(self, allowance: Allowance, seconds: float) -> AbstractAsyncContextManager[None]:
        """Count a recording in the limits of its key; see `Allowance.audio`."""

    def transcribe(self, recording: CutRecording, options: Options) -> AsyncGenerator[Answer, None]:
        """Return the answers of a recording's parts; see `Recordings.transcribe`."""


@dataclass(frozen=True, slots=True)
class LocalCore:
    """The core of a service whose dispatcher is in this process."""

    gate: Admission
    catalog: Catalog
    demand: Demand
    recordings: Recordings

    @property
    def loads_on_demand(self) -> bool:
        """Whether any model may be loaded on demand."""
        return not self.demand.is_off

    @asynccontextmanager
    async def hold_model(self, name: str) -> AsyncIterator[ServedModel | None]:
        """Hold a model, after loading it if needed."""
        async with AsyncExitStack() as held:
            yield await self.demand.get_or_load(name, held)

    @asynccontextmanager
    async def use_key(self, allowance: Allowance) -> AsyncIterator[None]:
        """Count a request in the limits of its key."""
        with allowance.enter(self.gate.retry_after):
            yield

    @asynccontextmanager
    async def use_audio(self, allowance: Allowance, seconds: float) -> AsyncIterator[None]:
        """Count a recording in the limits of its key."""
        with allowance.audio(seconds):
            yield

    def transcribe(self, recording: CutRecording, options: Options) -> AsyncGenerator[Answer, None]:
        """Return the answers of a recording's parts."""
        return self.recordings.transcribe(recording, options)
