"""Models on demand: the first request for a model loads it, others wait for it, and it is unloaded when idle."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass

from service.dispatch.catalog import Catalog, ServedModel
from service.engine.supervisor import EngineGoneError, ModelLoadError
from service.loadable import Loadable
from service.residency import Residency

log = logging.getLogger("steno")

_SWEEP_SECONDS = 1.0
_ENGINE_SECONDS = 10  # Retry-After while no engine is running
# A model that could not be loaded is not tried again for this time, which doubles with each failure: a load may kill
# the engine, and requests for other models would suffer.
_FIRST_REST_SECONDS = 30.0
_LONGEST_REST_SECONDS = 3600.0

# An absolute path, but not that of a URL.
_PATH = re.compile(r"(?<![\w/:.])/[^\s'\",;:]+")


class DemandError(Exception):
    """A model cannot be loaded now; the message says why in one line."""

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after  # whole seconds after which it will be tried again


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    times: int
    until: float


class _Load:
    """A model that is being loaded, and the requests that wait for it.

    Once loaded it is held until all of them have it, so that no other model evicts it before.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[ServedModel]
        self.waiting = 0
        self._held = ExitStack()

    @contextmanager
    def wait(self) -> Iterator[None]:
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._held.close()

    def hold(self, model: ServedModel) -> None:
        if self.waiting:
            self._held.enter_context(model.use())


class Demand:
    """Loads models that requests ask for, and unloads those that had no request for ``idle_seconds``.

    Its clock is that of the catalog, in monotonic seconds.
    """

    def __init__(
        self,
        residency: Residency,
        catalog: Catalog,
        loadable: Loadable,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._residency = residency
        self._catalog = catalog
        self._loadable = loadable
        self.is_off = loadable.is_empty
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._loads: dict[str, _Load] = {}
        self._failures: dict[str, _Failure] = {}

    async def ids(self) -> list[str]:
        """Return the ids of models that may be loaded, as far as they can be listed."""
        return [] if self.is_off else await asyncio.to_thread(self._loadable.ids)

    async def may_load(self, model: str) -> bool:
        """Return whether a model may be loaded."""
        return not self.is_off and await asyncio.to_thread(self._loadable.checkpoint, model) is not None

    async def get_or_load(self, name: str, resources: AsyncExitStack) -> ServedModel | None:
        """Return the model of this name, after loading it if needed; None if there is no such model.

        One of the settings is returned at once, ready or not. The model is held until ``resources`` are closed. If the
        call is cancelled, the load goes on, for other requests.

        Raises:
            DemandError: if it cannot be loaded.
        """
        checkpoint = None
        if self._catalog.find_at_hand(name) is None and name not in self._loads:
            self._check_rest(name)
            checkpoint = await asyncio.to_thread(self._loadable.checkpoint, name)
        # It may have been loaded meanwhile, or is being loaded.
        if (model := self._catalog.find_at_hand(name)) is not None:
            resources.enter_context(model.use())
            return model
        load = self._loads.get(name)
        if load is None and checkpoint is not None:
            load = self._begin(name, checkpoint)
        if load is None:
            return None
        with load.wait():
            model = await self._end_of(load, name)
            resources.enter_context(model.use())
        return model

    async def _end_of(self, load: _Load, model: str) -> ServedModel:
        try:
            return await asyncio.shield(load.task)
        except EngineGoneError as error:
            raise DemandError(str(error), _ENGINE_SECONDS) from None
        except ModelLoadError as error:
            self._check_rest(model)
            raise DemandError(_without_paths(str(error)), 1) from None

    async def sweep(self) -> None:
        """Unload idle models from time to time, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.unload_idle()

    def unload_idle(self) -> None:
        """Unload models on demand that had no request for ``idle_seconds``."""
        now = self._clock()
        for model in list(self._catalog):
            is_idle = model.is_on_demand and model.ready and not model.users and not model.is_leaving
            is_idle = is_idle and model.id not in self._loads  # which another engine is still loading
            if is_idle and now - model.last_used >= self._idle_seconds:
                self._residency.evict(model, "idle")

    def _begin(self, model: str, checkpoint: str) -> _Load:
        load = self._loads[model] = _Load()
        load.task = asyncio.create_task(self._load(load, model, checkpoint))
        load.task.add_done_callback(lambda done: self._end(model, done))
        return load

    def _end(self, model: str, load: "asyncio.Task[ServedModel]") -> None:
        del self._loads[model]
        error = None if load.cancelled() else load.exception()  # the requests may have left
        if error is None:
            self._failures.pop(model, None)
        elif isinstance(error, ModelLoadError) and not isinstance(error, EngineGoneError):
            times = self._failures[model].times + 1 if model in self._failures else 1
            rest = min(_FIRST_REST_SECONDS * 2 ** (times - 1), _LONGEST_REST_SECONDS)
            self._failures[model] = _Failure(str(error), times, self._clock() + rest)
            log.warning("model cannot be loaded", extra={"model": model, "reason": str(error), "rest_seconds": rest})

    def _check_rest(self, model: str) -> None:
        failure = self._failures.get(model)
        if failure and (left := failure.until - self._clock()) > 0:
            raise DemandError(_without_paths(failure.reason), math.ceil(left))

    async def _load(self, load: _Load, model: str, checkpoint: str) -> ServedModel:
        await self._residency.until_gone(model)
        log.info("loading model on demand", extra={"model": model})
        served = await self._residency.load(model, checkpoint)
        load.hold(served)
        return served


def _without_paths(reason: str) -> str:
    """Return a reason as a client may know it: of each path on this machine only the name of the file."""
    return _PATH.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], reason)
