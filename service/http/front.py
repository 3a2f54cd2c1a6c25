"""What the routes work with."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from audio.pool import DecodePool
from audio.segment.voice_activity import SpeechDetector
from service.demand import Demand, DemandError
from service.dispatch.catalog import ServedModel
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.recordings import Recordings
from service.grammars import Grammars
from service.http.access import Access
from service.http.errors import RequestError
from service.http.intake import Intake
from service.http.served import Served
from service.jobs.jobs import Jobs
from service.metrics import Metrics
from service.outbound import Outbound
from service.residency import Residency
from service.settings import Settings
from service.tracing import PassingOn, Tracer


@dataclass(frozen=True, slots=True)
class Front:
    """The parts of a service that answer a request; one per service, found as `request.app.state.front`.

    Attributes:
        recordings: takes recordings of any length to the dispatcher.
        decode_threads: threads that decode uploads: nothing that takes a millisecond runs on the event loop.
        cut_threads: threads that cut long recordings; apart, because decoding hours of audio takes a while.
        detector: what they find speech with.
        intake: lets uploads through to them, no faster than they decode.
        decode_pool: what they call; it keeps hostile files away from this process.
        started: Unix time, the `created` of the models.
        access: the API keys.
        admin_access: the keys that open the admin routes.
        grammars: write numbers as people do.
        residency: loads models and lets them go.
        demand: brings in models that a request asks for.
        tracer: traces requests.
        jobs: transcriptions that nobody waits for; None where no folder is set for them.
        outbound: fetches recordings that a request names by a URL; None where it may not.
    """

    settings: Settings
    dispatcher: Dispatcher
    recordings: Recordings
    metrics: Metrics
    decode_threads: ThreadPoolExecutor
    cut_threads: ThreadPoolExecutor
    detector: SpeechDetector
    decode_pool: DecodePool
    intake: Intake
    started: int
    access: Access
    admin_access: Access
    grammars: Grammars
    residency: Residency
    demand: Demand
    outbound: Outbound | None
    jobs: Jobs | None = None
    tracer: Tracer = field(default_factory=PassingOn)

    def served(self, name: str | None) -> Served:
        """Return the model that a client calls so, or that answers where it says nothing.

        Raises:
            RequestError: if there is none.
            ModelNotReadyError: if it has not been ready yet.
        """
        return self._ready(self.found(name))

    async def bring(self, name: str, seconds: float, resources: AsyncExitStack) -> Served:
        """Return the model that a client calls so; one that may come on demand is loaded, and waited for.

        Args:
            name: as the client says.
            seconds: how long it may take.
            resources: of the request; the model stays until they are closed.

        Raises:
            RequestError: if there is none, or it cannot be loaded.
            ModelNotReadyError: if it is not ready by then.
        """
        try:
            async with asyncio.timeout(seconds):
                model = await self.demand.bring(name, resources)
        except TimeoutError:
            raise self.dispatcher.admission.still_loading() from None
        except DemandError as error:
            raise RequestError(
                f"The model {name!r} cannot be loaded: {error}.",
                code="model_load_failed",
                param="model",
                status=503,
                retry_after=error.retry_after,
                should_retry=False,
            ) from None
        return self._ready(model or self.found(name))

    def _ready(self, model: ServedModel) -> Served:
        served = self.as_served(model)
        if served is None:
            raise self.dispatcher.admission.still_loading()
        return served

    def as_served(self, model: ServedModel) -> Served | None:
        """Return a model as requests meet it; None before it has been loaded."""
        told = self.settings.languages if model.id == self.dispatcher.catalog.default else ()
        return None if model.ready is None else Served(model, model.ready, told)

    def found(self, name: str | None) -> ServedModel:
        """Return the model that a client calls so, loaded or not; without a name the default, or the only one.

        Raises:
            RequestError: if there is none.
        """
        catalog = self.dispatcher.catalog
        if name is None:
            staying = [model for model in catalog if not model.is_leaving]
            model = catalog.find(catalog.default) or (staying[0] if len(staying) == 1 else None)
            if model is None:
                message = "The field 'model' is missing, and this service has no default."
                raise RequestError(message, code="missing_required_parameter", param="model")
            return model
        model = catalog.find(name)
        if model is None:
            known = ", ".join(repr(one.id) for one in catalog if not one.is_leaving) or "none"
            raise RequestError(
                f"The model {name!r} does not exist; this service has {known}.",
                code="model_not_found",
                param="model",
                status=404,
            )
        return model
