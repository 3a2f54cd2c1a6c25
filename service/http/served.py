"""A model as a request meets it: what it can be asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dispatch.catalog import ServedModel
from service.dispatch.utterance import Lane
from service.engine.protocol import Ready
from service.http.errors import RequestError
from service.http.prompts import takes_prompts
from service.http.schemas import TranscriptionForm
from service.languages import NAMES


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is ready.

    Attributes:
        model: its place in the catalog.
        ready: what an engine says of it.
        told_languages: what the operator says that it speaks; nothing where the checkpoint knows.
    """

    model: ServedModel
    ready: Ready
    told_languages: tuple[str, ...]

    @property
    def id(self) -> str:
        """What clients call it."""
        return self.model.id

    @property
    def info(self) -> Mapping[str, Any]:
        """What it says of itself."""
        return self.ready.info

    @property
    def spellings(self) -> Sequence[bytes]:
        """What each token adds to a text."""
        return self.ready.spellings

    @property
    def languages(self) -> list[str]:
        """ISO 639-1 codes of what it speaks; none where that is not known.

        The operator knows better than a checkpoint, but a model that is told the language cannot be told any other.
        """
        told, known = self.told_languages, self.info.get("languages") or ()
        if takes_prompts(self.info):
            return [code for code in told if code in known] or list(known)
        return list(told or known)

    def check_language(self, code: str | None, param: str = "language") -> None:
        """Accept a language that it speaks, and any where that is not known.

        Raises:
            RequestError: for any other, naming what is spoken.
        """
        spoken = self.languages
        if code is None or not spoken or code in spoken:
            return
        names = ", ".join(f"{known!r} ({NAMES.get(known)})" for known in spoken)
        raise RequestError(
            f"The model {self.id!r} does not speak {code!r} ({NAMES[code]}); it speaks {names}.",
            code="unsupported_value",
            param=param,
        )

    def narrowed(self, fields: TranscriptionForm) -> TranscriptionForm:
        """Return a form whose languages it speaks; the only one that it can be counts as named.

        Raises:
            RequestError: if it does not speak one of them.
        """
        self.check_language(fields.language)
        self.check_language(fields.target_language, "target_language")
        for language in fields.languages:
            self.check_language(language, "languages")
        if fields.language is None and len(set(fields.languages)) == 1:
            return fields.model_copy(update={"language": fields.languages[0]})
        return fields

    def check_translation(self) -> None:
        """Accept a request for a translation if it translates.

        Raises:
            RequestError: if it does not.
        """
        if not self.info.get("capabilities", {}).get("translation"):
            message = f"The model {self.id!r} does not translate."
            raise RequestError(message, code="model_not_found", param="model", status=404)

    def lane(self, decoder: str | None) -> Lane:
        """Return where a request for one of its decoders goes.

        Raises:
            RequestError: if it has no such decoder.
        """
        known = self.info.get("decoders", ())
        if decoder is not None and decoder not in known:
            names = ", ".join(map(repr, known))
            message = f"The model {self.id!r} has no decoder {decoder!r}; it has {names}."
            raise RequestError(message, code="unsupported_value", param="decoder")
        # What is its first anyway shares batches with what did not say.
        return Lane(self.id, None if decoder is None or decoder == known[0] else decoder)
