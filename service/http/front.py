"""What answers requests for transcripts in a process: `Front`."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from audio.pool import DecodePool
from audio.segment.voice_activity import SpeechDetector
from service.demand import DemandError
from service.dispatch.catalog import ServedModel
from service.dispatch.identification import Identification
from service.dispatch.utterance import Lane
from service.http.core import Core
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.keys.access import Access
from service.http.transcription.intake import Intake
from service.http.transcription.loaded_model import LoadedModel
from service.metrics import Metrics
from service.outbound import Outbound
from service.phrase_file import PhraseFile
from service.settings import Settings
from service.tracing import Tracer


@dataclass(frozen=True, slots=True)
class Front:
    """The parts that answer requests for transcripts; one per process, found as `request.app.state.front`.

    Attributes:
        decode_threads: threads that decode uploads, because nothing that takes a millisecond may run on the event loop.
        cut_threads: threads that cut long recordings and write long answers; separate, because decoding may take long.
        started: Unix time of the start, the `created` of models.
        phrases: the service's own phrases.
        outbound: fetches recordings from URLs; None if no hosts are allowed.
    """

    settings: Settings
    core: Core
    metrics: Metrics
    decode_threads: ThreadPoolExecutor
    cut_threads: ThreadPoolExecutor
    detector: SpeechDetector
    decode_pool: DecodePool
    intake: Intake
    started: int
    access: Access
    phrases: PhraseFile | None
    outbound: Outbound | None
    tracer: Tracer = field(default_factory=Tracer)

    async def hold_model(self, name: str, seconds: float, resources: AsyncExitStack) -> LoadedModel:
        """Hold the model of this id or alias, after loading it on demand within these seconds, if needed.

        It stays loaded until the resources of the request are closed.

        Raises:
            RequestError: if there is no such model, or it cannot be loaded.
            ModelNotReadyError: if it is not ready in time.
        """
        try:
            async with asyncio.timeout(seconds):
                model = await resources.enter_async_context(self.core.hold_model(name))
        except TimeoutError:
            raise self.core.gate.still_loading() from None
        except DemandError as error:
            raise RequestError(
                f"The model {name!r} cannot be loaded: {error}.",
                code=ErrorCode.MODEL_LOAD_FAILED,
                param="model",
                retry_after=error.retry_after,
                should_retry=False,
            ) from None
        loaded = self.loaded_model(model or self.find_model(name))
        if loaded is None:
            raise self.core.gate.still_loading()
        return loaded

    def loaded_model(self, model: ServedModel) -> LoadedModel | None:
        """Return a model for requests; None before it was loaded."""
        configured = self.settings.languages if model.id == self.core.catalog.default else ()
        return None if model.ready is None else LoadedModel(model, model.ready, configured)

    def identification(self, possible: Sequence[str], *, is_exhaustive: bool) -> Identification | None:
        """Return how to identify the language of a recording; `is_exhaustive` tells that no other can be spoken.

        None, if there is no language identifier, or it knows none of the languages.

        Raises:
            ModelNotReadyError: if the identifier is not loaded yet.
        """
        identifier = self.core.catalog.identifier
        if identifier is None:
            return None
        if identifier.ready is None:
            raise self.core.gate.still_loading()
        known = identifier.ready.info.languages or ()
        languages = tuple(language for language in possible if language in known)
        if not languages:
            return None
        return Identification(Lane(identifier.id), identifier.ready.sample_rate, languages, is_exhaustive)

    def find_model(self, name: str) -> ServedModel:
        """Return the model of this id or alias, loaded or not.

        Raises:
            RequestError: if there is no such model.
        """
        catalog = self.core.catalog
        model = catalog.find(name)
        if model is None:
            known = ", ".join(repr(one.id) for one in catalog.served if not one.is_leaving)
            more = "; GET /v1/models lists those that it loads on demand" if self.core.loads_on_demand else ""
            raise RequestError(
                f"The model {name!r} does not exist; this service has {known}{more}.",
                code=ErrorCode.MODEL_NOT_FOUND,
                param="model",
            )
        return model
