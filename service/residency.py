"""Which models are in memory: further ones come in while the service runs, and go when nobody uses them."""

import logging

import msgspec

from service.dispatch.catalog import ServedModel
from service.dispatch.dispatcher import Dispatcher
from service.engine.fleet import Fleet
from service.engine.protocol import Load
from service.engine.supervisor import ModelLoadError

log = logging.getLogger("steno")


class Residency:
    """Brings models in and lets them go.

    Args:
        dispatcher: Has the catalog.
        fleet: Has the engines.
        template: What is said to engines of every model, but for its name and checkpoint.
        max_weight_bytes: What the weights of all models may take together; None: what the device has.
    """

    def __init__(self, dispatcher: Dispatcher, fleet: Fleet, template: Load, max_weight_bytes: int | None) -> None:
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._template = template
        self._max_weight_bytes = max_weight_bytes

    async def bring_in(self, model: str, checkpoint: str) -> ServedModel:
        """Load a model; it is in the catalog from now on, and ready when this returns.

        Raises:
            KeyError: If there is one of this id.
            ModelLoadError: If it cannot be loaded, or takes more memory than is left.
        """
        catalog = self._dispatcher.catalog
        served = catalog.add(model, checkpoint)
        self._dispatcher.metrics.expect_models([model])
        try:
            await self._fleet.load(msgspec.structs.replace(self._template, model=model, checkpoint=checkpoint))
        except ModelLoadError as error:
            self._dispatcher.give_up_model(model, str(error))  # one engine may have had it, and begun
            raise
        if self._max_weight_bytes is not None and catalog.weight_bytes > self._max_weight_bytes:
            taken, ours = catalog.weight_bytes, served.ready.weight_bytes if served.ready else 0
            await self.let_go(model)
            raise ModelLoadError(
                f"its weights take {ours} bytes, and {self._max_weight_bytes - taken + ours} "
                f"of {self._max_weight_bytes} are left"
            )
        log.info("model brought in", extra={"model": model, "checkpoint": checkpoint})
        return served

    async def let_go(self, model: str) -> None:
        """Take no more requests for a model, wait for those under way, and give its memory back.

        Raises:
            KeyError: If there is none of this id, or it is on its way in or out.
        """
        served = self._dispatcher.catalog[model]
        if served.ready is None or served.is_leaving:
            raise KeyError(model)
        served.is_leaving = True
        await served.until_unused()
        self._fleet.unload(model)
        self._dispatcher.forget(model)
        log.info("model let go", extra={"model": model})
