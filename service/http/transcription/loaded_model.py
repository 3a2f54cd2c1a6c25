"""A loaded model, and the checks that it can do what a request asks for."""

from dataclasses import dataclass
from functools import cached_property

from service.dispatch.catalog import ServedModel
from service.dispatch.utterance import Lane
from service.engine.protocol import ModelInfo, Ready
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, unsupported
from service.http.transcription.form import TranscriptionForm
from transcripts.alphabets import tells_apart
from transcripts.languages import NAMES


@dataclass(frozen=True)  # without slots, which would keep nothing that was computed
class LoadedModel:
    """A loaded model, as the catalog and an engine describe it.

    Attributes:
        configured_languages: ISO 639-1 codes of its languages in the settings; empty if these name none.
    """

    entry: ServedModel
    ready: Ready
    configured_languages: tuple[str, ...]

    @property
    def id(self) -> str:
        """Its id."""
        return self.entry.id

    @cached_property
    def info(self) -> ModelInfo:
        """Its description."""
        return self.ready.info

    @property
    def takes_prompts(self) -> bool:
        """Whether it takes prompts, because it has an attention decoder."""
        return "aed" in self.info.decoders

    @cached_property
    def languages(self) -> list[str]:
        """ISO 639-1 codes of its languages; empty if they are not known.

        Settings have priority over a checkpoint. Of a model with prompts, they can only leave out languages.
        """
        configured, known = self.configured_languages, self.info.languages or ()
        if self.takes_prompts:
            return [code for code in configured if code in known] or list(known)
        return list(configured or known)

    def assumed_language(self, fields: TranscriptionForm) -> str | None:
        """Return the spoken language that is assumed if the form names none; None of a model without prompts.

        It is the model's default or, where `languages` or the settings exclude that, the first of the others.
        """
        default, possible = self.info.default_language, fields.languages or self.languages
        return default if default is None or default in possible or not possible else possible[0]

    def ensures(self, language: str) -> bool:
        """Return whether the text is in a language if a request names that.

        It is with a prompt for the language, if the model has no other language, or if no other has its script.
        """
        info = self.info
        if self.takes_prompts or info.capabilities.language or len(self.languages) == 1:
            return True
        return tells_apart(language, info.scripts, self.languages or NAMES)

    def check_language(self, code: str | None, param: str = "language") -> None:
        """Raise RequestError, with its languages, for one that the model lacks; if none is known, any is accepted."""
        spoken = self.languages
        if code is None or not spoken or code in spoken:
            return
        names = ", ".join(f"{known!r} ({NAMES[known]})" if known in NAMES else repr(known) for known in spoken)
        raise unsupported(param, f"The model {self.id!r} does not speak {code!r} ({NAMES[code]}); it speaks {names}.")

    def narrowed(self, fields: TranscriptionForm) -> TranscriptionForm:
        """Check the languages of a form; return it with ``language`` set if ``languages`` leaves only one.

        Raises:
            RequestError: if the model lacks any of them.
        """
        self.check_language(fields.language)
        self.check_language(fields.target_language, "target_language")
        for language in fields.languages:
            self.check_language(language, "languages")
        if fields.language is None and len(set(fields.languages)) == 1:
            return fields.model_copy(update={"language": fields.languages[0]})
        return fields

    def check_translation(self) -> None:
        """Raise RequestError if the model does not translate."""
        if not self.info.capabilities.translation:
            message = f"The model {self.id!r} does not translate."
            raise RequestError(message, code=ErrorCode.MODEL_NOT_FOUND, param="model")

    def lane(self, decoder: str | None) -> Lane:
        """Return the lane of one of its decoders; raise RequestError if it has no such decoder."""
        known = self.info.decoders
        if decoder is not None and decoder not in known:
            names = ", ".join(map(repr, known))
            raise unsupported("decoder", f"The model {self.id!r} has no decoder {decoder!r}; it has {names}.")
        # Naming the first decoder is the same as naming none, so that such requests share batches.
        return Lane(self.id, None if decoder is None or decoder == known[0] else decoder)
