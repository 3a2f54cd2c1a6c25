"""What the routes work with."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from audio.pool import DecodePool
from audio.segment.voice_activity import SpeechDetector
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.recordings import Recordings
from service.http.access import Access
from service.http.errors import RequestError
from service.http.prompts import takes_prompts
from service.languages import NAMES
from service.metrics import Metrics
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Front:
    """The parts of a service that answer a request; one per service, found as `request.app.state.front`.

    Attributes:
        recordings: Takes recordings of any length to the dispatcher.
        decoders: Threads that decode uploads: nothing that takes a millisecond runs on the event loop.
        cutters: Threads that find the parts of long recordings; apart, because decoding hours of audio takes a while.
        detector: What they find speech with.
        decode_pool: What they call; it keeps hostile files away from this process.
        started: Unix time, the `created` of the model.
        access: The API keys.
    """

    settings: Settings
    dispatcher: Dispatcher
    recordings: Recordings
    metrics: Metrics
    decoders: ThreadPoolExecutor
    cutters: ThreadPoolExecutor
    detector: SpeechDetector
    decode_pool: DecodePool
    started: int
    access: Access

    @property
    def model_id(self) -> str:
        """What clients call the model."""
        return self.settings.model_id

    def check_model(self, name: str) -> None:
        """Accept the model's id and its aliases.

        Raises:
            RequestError: For any other name.
        """
        if name != self.model_id and name not in self.settings.model_aliases:
            raise RequestError(
                f"The model {name!r} does not exist; this service has {self.model_id!r}.",
                code="model_not_found",
                param="model",
                status=404,
            )

    @property
    def info(self) -> Mapping[str, Any]:
        """What the model says of itself; nothing before an engine has been ready."""
        return self.dispatcher.model.info if self.dispatcher.model else {}

    @property
    def languages(self) -> list[str]:
        """ISO 639-1 codes of what the model speaks; none where that is not known.

        The operator knows better than a checkpoint, but a model that is told the language cannot be told any other.
        """
        told, known = self.settings.languages, self.info.get("languages") or ()
        if takes_prompts(self.info):
            return [code for code in told if code in known] or list(known)
        return list(told or known)

    def check_language(self, code: str | None, param: str = "language") -> None:
        """Accept a language that the model speaks, and any where that is not known.

        Raises:
            RequestError: For any other, naming what is spoken.
        """
        spoken = self.languages
        if code is None or not spoken or code in spoken:
            return
        names = ", ".join(f"{known!r} ({NAMES.get(known)})" for known in spoken)
        raise RequestError(
            f"The model {self.model_id!r} does not speak {code!r} ({NAMES[code]}); it speaks {names}.",
            code="unsupported_value",
            param=param,
        )

    def check_translation(self) -> None:
        """Accept a request for a translation if the model translates.

        Raises:
            RequestError: If it does not.
        """
        if not self.info.get("capabilities", {}).get("translation"):
            message = f"The model {self.model_id!r} does not translate."
            raise RequestError(message, code="model_not_found", param="model", status=404)
