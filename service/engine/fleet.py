"""A fleet: one supervisor for each device, behind the interface of a single supervisor."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from service.engine.devices import EngineDevice
from service.engine.protocol import Load
from service.engine.supervisor import Engine, EngineStartError, ModelLoadError, Supervisor

log = logging.getLogger("steno.fleet")


class Fleet:
    """Keeps an engine running on each device, with each of ``loads`` on that device and its threads."""

    def __init__(
        self,
        devices: Sequence[EngineDevice],
        loads: Iterable[Load],
        supervisor: Callable[[str, list[Load]], Supervisor],
    ) -> None:
        loads = list(loads)
        self._devices = {device: supervisor(device.name, [_at(device, load) for load in loads]) for device in devices}

    @property
    def engines(self) -> list[Engine]:
        """The engines that are running now."""
        return [supervisor.engine for supervisor in self._devices.values() if supervisor.engine]

    async def run(self) -> None:
        """Start and replace engines until `stop`.

        A device whose engine cannot be started any more is given up, if there are others.

        Raises:
            EngineStartError: if the first start on any device fails, or the last device is given up.
        """
        running = {asyncio.create_task(one.run()): device for device, one in self._devices.items()}
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    device = running.pop(task)
                    error = task.exception()
                    if error is None:
                        continue
                    if not isinstance(error, EngineStartError) or error.is_first or not running:
                        raise error
                    log.error("device given up", extra={"device": device.name, "reason": str(error)})
                    del self._devices[device]
        finally:
            if running:
                await self.stop()
                await asyncio.gather(*running, return_exceptions=True)

    async def stop(self) -> None:
        """Ask the engines to end, and kill those that do not."""
        await asyncio.gather(*(one.stop() for one in self._devices.values()))

    async def load(self, load: Load) -> None:
        """Load another model in every engine, now and after each restart, until `unload`.

        Raises:
            ModelLoadError: if any engine cannot; then none has it.
        """
        each = (one.load(_at(device, load)) for device, one in self._devices.items())
        outcomes = await asyncio.gather(*each, return_exceptions=True)
        if failures := [outcome for outcome in outcomes if outcome is not None]:
            self.unload(load.model)
            raise next((one for one in failures if isinstance(one, ModelLoadError)), failures[0])

    def unload(self, model: str) -> None:
        """Unload a model that no request uses."""
        for one in self._devices.values():
            one.unload(model)


def _at(device: EngineDevice, load: Load) -> Load:
    return msgspec.structs.replace(
        load, device=device.device, threads=device.threads, shared_threads=device.shared_threads
    )
