"""The models of a service, loaded or not yet, and how many requests use each."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.engine.protocol import Ready


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model of the service."""

    id: str  # its name for clients
    checkpoint: str  # where its weights come from
    ready: Ready | None = None  # the last description of it by an engine; None until one has loaded it
    is_leaving: bool = False  # whether it takes no new requests
    is_on_demand: bool = False  # whether it was loaded for a request, and may be unloaded when idle
    identifies: bool = False  # whether it is the language identifier, for which clients cannot ask
    users: int = 0
    last_used: float = 0.0  # time of ``clock`` when it was loaded, or its last request ended
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    _unused: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Hold the model for a request: it stays loaded until the request is finished."""
        self.users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self.users -= 1
            self.last_used = self.clock()
            if not self.users:
                self._unused.set()

    async def until_unused(self) -> None:
        """Wait until no request holds it."""
        while self.users:
            await self._unused.wait()


class Catalog:
    """The models by id, in the order in which they were added.

    Args:
        checkpoints: checkpoints of the models to load at the start, by id; the first is the default.
        identifier: id and checkpoint of the language identifier, which is loaded at the start too; None if there is
            none.
    """

    def __init__(
        self,
        checkpoints: Mapping[str, str],
        aliases: tuple[str, ...] = (),
        identifier: tuple[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._models = {model: ServedModel(model, checkpoint, clock=clock) for model, checkpoint in checkpoints.items()}
        if identifier is not None:
            self._models[identifier[0]] = ServedModel(*identifier, identifies=True, clock=clock)
        self._expected = set(self._models)
        self.default = next(iter(checkpoints))  # id of the default
        self._aliases = aliases
        # Called when a model was added, removed, loaded, or takes no more requests.
        self.on_change: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def __contains__(self, model: object) -> bool:
        return model in self._models

    def __getitem__(self, model: str) -> ServedModel:
        return self._models[model]

    @property
    def served(self) -> list[ServedModel]:
        """The models that clients may ask for: all but the language identifier."""
        return [model for model in self if not model.identifies]

    @property
    def identifier(self) -> ServedModel | None:
        """The language identifier, loaded or not."""
        return next((model for model in self if model.identifies), None)

    def find(self, name: str) -> ServedModel | None:
        """Return the model with this id or alias, loaded or not; None if it takes no requests."""
        model = self._models.get(self.default if name in self._aliases and name not in self._models else name)
        return None if model is None or model.is_leaving or model.identifies else model

    def find_at_hand(self, name: str) -> ServedModel | None:
        """Return the model that ``find`` finds, unless it is loaded on demand and not loaded yet."""
        model = self.find(name)
        return model if model and (model.ready or not model.is_on_demand) else None

    def add(self, model: str, checkpoint: str, *, is_on_demand: bool = False) -> ServedModel:
        """Add a model; requests can use it once it is ready.

        Raises:
            KeyError: if there is a model of this id.
        """
        if model in self._models:
            raise KeyError(model)
        served = ServedModel(model, checkpoint, is_on_demand=is_on_demand, clock=self.clock)
        self._models[model] = served
        self.on_change()
        return served

    def remove(self, model: str) -> None:
        """Remove a model, if it is there."""
        self._models.pop(model, None)
        self._expected.discard(model)
        self.on_change()

    def replace(self, models: Iterable[ServedModel]) -> None:
        """Replace all models by those of the main process."""
        self._models = {model.id: model for model in models}

    def begin_leaving(self, model: ServedModel) -> None:
        """Take no new requests for a model."""
        model.is_leaving = True
        self.on_change()

    def ready(self, ready: Ready) -> None:
        """Record an engine's description of a model that it has loaded."""
        if model := self._models.get(ready.model):
            if model.ready is None:
                model.last_used = self.clock()  # its idle time begins now
            model.ready = ready
            self.on_change()

    @property
    def is_ready(self) -> bool:
        """Whether all models that the service starts with are loaded; those added later do not count."""
        return all(self._models[model].ready for model in self._expected)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of all loaded models."""
        return sum(model.ready.weight_bytes for model in self if model.ready)
