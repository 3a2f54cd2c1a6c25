"""What requests for transcripts need of the process with the dispatcher: gate 1, the models, and the limits of keys.

`LocalCore` is that of this process. An HTTP process of its own has another one (service/workers/remote.py).
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from service.demand import Demand
from service.dispatch.admission import Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.http.allowance import Allowance


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

    async def get_or_load(self, name: str, resources: AsyncExitStack) -> ServedModel | None:
        """Return a model, after loading it if needed; see `Demand.get_or_load`."""

    def use_key(self, allowance: Allowance) -> AbstractAsyncContextManager[None]:
        """Count a request in the limits of its key; see `Allowance.enter`."""

    def use_audio(self, allowance: Allowance, seconds: float) -> AbstractAsyncContextManager[None]:
        """Count a recording in the limits of its key; see `Allowance.audio`."""


@dataclass(frozen=True, slots=True)
class LocalCore:
    """The core of a service whose dispatcher is in this process."""

    gate: Gate
    catalog: Catalog
    demand: Demand

    @property
    def loads_on_demand(self) -> bool:
        """Whether any model may be loaded on demand."""
        return not self.demand.is_off

    async def get_or_load(self, name: str, resources: AsyncExitStack) -> ServedModel | None:
        """Return a model, after loading it if needed."""
        return await self.demand.get_or_load(name, resources)

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
