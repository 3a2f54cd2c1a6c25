"""A fleet: one supervisor for each device, behind the interface of a single supervisor."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from service.engine.devices import Place
from service.engine.protocol import Load
from service.engine.supervisor import Engine, EngineStartError, ModelLoadError, Supervisor

log = logging.getLogger("steno.fleet")


class Fleet:
    """Keeps an engine running at each place.

    Args:
        places: where engines run.
        loads: the models of each engine; device and threads are filled in.
        supervisor: makes the supervisor of a place from its name and its loads.
    """

    def __init__(
        self, places: Sequence[Place], loads: Iterable[Load], supervisor: Callable[[str, list[Load]], Supervisor]
    ) -> None:
        loads = list(loads)
        self._places = {place: supervisor(place.name, [_at(place, load) for load in loads]) for place in places}

    @property
    def engines(self) -> list[Engine]:
        """The engines that are running now."""
        return [supervisor.engine for supervisor in self._places.values() if supervisor.engine]

    async def run(self) -> None:
        """Start and replace engines until `stop`.

        A device whose engine cannot be started any more is given up, if there are others.

        Raises:
            EngineStartError: if the first start on any device fails, or the last device is given up.
        """
        running = {asyncio.create_task(one.run()): place for place, one in self._places.items()}
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    place = running.pop(task)
                    error = task.exception()
                    if error is None:
                        continue
                    if not isinstance(error, EngineStartError) or error.is_first or not running:
                        raise error
                    log.error("device given up", extra={"device": place.name, "reason": str(error)})
                    del self._places[place]
        finally:
            if running:
                await self.stop()
                await asyncio.gather(*running, return_exceptions=True)

    async def stop(self) -> None:
        """Ask the engines to end, and kill those that do not."""
        await asyncio.gather(*(one.stop() for one in self._places.values()))

    async def load(self, load: Load) -> None:
        """Load another model in every engine, now and after each restart, until `unload`.

        Raises:
            ModelLoadError: if any engine cannot; then none has it.
        """
        each = (one.load(_at(place, load)) for place, one in self._places.items())
        outcomes = await asyncio.gather(*each, return_exceptions=True)
        if failures := [outcome for outcome in outcomes if outcome is not None]:
            self.unload(load.model)
            raise next((one for one in failures if isinstance(one, ModelLoadError)), failures[0])

    def unload(self, model: str) -> None:
        """Unload a model; no batch for it may be under way."""
        for one in self._places.values():
            one.unload(model)


def _at(place: Place, load: Load) -> Load:
    return msgspec.structs.replace(load, device=place.device, threads=place.threads)
