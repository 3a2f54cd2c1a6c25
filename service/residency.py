"""Loading and unloading models while the service runs."""

import asyncio
import logging
from pathlib import Path
from typing import Literal

import msgspec

from service.dispatch.catalog import ServedModel
from service.dispatch.dispatcher import Dispatcher
from service.engine.fleet import Fleet
from service.engine.protocol import Load
from service.engine.supervisor import ModelLoadError

log = logging.getLogger("steno")


class Residency:
    """Loads and unloads models.

    Args:
        template: the message that loads a model, without its id and checkpoint.
        max_weight_bytes: limit on the weights of all models together; None: the device's memory.
    """

    def __init__(self, dispatcher: Dispatcher, fleet: Fleet, template: Load, max_weight_bytes: int | None) -> None:
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._template = template
        self._max_weight_bytes = max_weight_bytes
        self._loading = asyncio.Lock()  # one at a time, because the next must know what memory is left
        self._leaving: dict[str, asyncio.Task[None]] = {}
        # Of models that were loaded before, by checkpoint and size of its file: another file may have taken its place.
        self._weight_bytes: dict[tuple[str, int], int] = {}

    async def load(self, model: str, checkpoint: str) -> ServedModel:
        """Load a model on demand; it is in the catalog at once, and ready when this returns.

        If its weights need room, others are unloaded, the longest idle first; but none for a model that is known
        to have no room even then. The call must not be cancelled: engines would go on, and have a model that is not in
        the catalog.

        Raises:
            KeyError: if there is a model of this id.
            ModelLoadError: if it cannot be loaded, or needs more memory than can be freed.
        """
        catalog, metrics = self._dispatcher.catalog, self._dispatcher.metrics
        served = catalog.add(model, checkpoint, is_on_demand=True)
        try:
            async with self._loading:
                size = await _size(checkpoint)
                if known := self._weight_bytes.get((checkpoint, size)):
                    self._check_room(served, known)
                # The size of a file is a guess: if there is no room for it, the load is tried all the same.
                await self._make_room(served, known or size)
                await self._fleet.load(msgspec.structs.replace(self._template, model=model, checkpoint=checkpoint))
                assert served.ready is not None
                self._weight_bytes[checkpoint, size] = ours = served.ready.weight_bytes
                try:
                    self._check_room(served, ours)
                except ModelLoadError:
                    await self._begin_leaving(served)
                    raise
                await self._make_room(served, 0)
        except BaseException as error:
            metrics.model_loads.labels("error").inc()
            if model in catalog:
                self._dispatcher.give_up_model(model, str(error))  # one engine may have loaded it, and begun to use it
            raise
        metrics.expect_models([model])
        metrics.model_loads.labels("ok").inc()
        log.info("model loaded", extra={"model": model, "checkpoint": checkpoint})
        return served

    async def until_gone(self, model: str) -> None:
        """Wait until a model that is being unloaded is gone."""
        if leaving := self._leaving.get(model):
            await asyncio.shield(leaving)

    def evict(self, model: ServedModel, reason: Literal["idle", "memory"]) -> "asyncio.Task[None]":
        """Begin to unload a model on demand, which takes no more requests; return the task that unloads it."""
        log.info("model evicted", extra={"model": model.id, "reason": reason})
        return self._begin_leaving(model)

    def _begin_leaving(self, served: ServedModel) -> "asyncio.Task[None]":
        self._dispatcher.catalog.begin_leaving(served)
        leaving = self._leaving[served.id] = asyncio.create_task(self._leave(served))
        leaving.add_done_callback(lambda _: self._leaving.pop(served.id))
        return leaving

    async def _leave(self, served: ServedModel) -> None:
        await served.until_unused()
        if served.id in self._dispatcher.catalog:  # unless it was lost with its engine
            self._fleet.unload(served.id)
            self._dispatcher.forget(served.id)
        log.info("model unloaded", extra={"model": served.id})

    def _check_room(self, served: ServedModel, taken: int) -> None:
        """Check that a model of ``taken`` bytes has room if all models on demand go.

        Raises:
            ModelLoadError: if it has none even then.
        """
        if (limit := self._max_weight_bytes) is None:
            return
        others = (one for one in self._dispatcher.catalog if one is not served)
        kept = sum(one.ready.weight_bytes for one in others if one.ready and not (one.is_on_demand or one.is_leaving))
        if kept + taken > limit:
            raise ModelLoadError(f"its weights take {taken} bytes, and {limit - kept} of {limit} are left")

    async def _make_room(self, served: ServedModel, more: int) -> None:
        """Unload other models on demand until there is room for ``more`` bytes, or all of them are gone."""
        catalog, limit = self._dispatcher.catalog, self._max_weight_bytes
        while limit is not None and catalog.weight_bytes + more > limit:
            if self._leaving:
                await asyncio.wait(self._leaving.values(), return_when=asyncio.FIRST_COMPLETED)
                continue
            others = [one for one in catalog if one.is_on_demand and one.ready and one is not served]
            if not others:
                return
            # Idle ones first. A busy one is unloaded when its requests are answered.
            await self.evict(min(others, key=lambda one: (bool(one.users), one.last_used)), "memory")


async def _size(checkpoint: str) -> int:
    """Return the size of a ``.nemo`` file, which is about that of its weights; 0 for any other checkpoint."""
    try:
        return (await asyncio.to_thread(Path(checkpoint).stat)).st_size if checkpoint.endswith(".nemo") else 0
    except OSError:
        return 0
