"""The prompt for a form, or the error if the model cannot do what the form asks for.

Models with prompts (Canary) have several languages, translate, and write times or punctuation if the prompt says so.
Other models get an empty prompt.
"""

from collections.abc import Sequence

from service.engine.protocol import ModelInfo
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.schemas import TranscriptionForm
from transcripts.languages import NAMES
from transcripts.prompt import DEFAULT_PROMPT, ENGLISH, Prompt

# Formats that need times, and those that use them.
_TIMED = ("srt", "vtt")
_BETTER_TIMED = (*_TIMED, "verbose_json")


def prompt_of(fields: TranscriptionForm, info: ModelInfo, assumed: str | None) -> Prompt:
    """Return the prompt for a model.

    Args:
        fields: the form; its languages are checked already.
        info: the model's description.
        assumed: the spoken language if the form names none; None if one that can be translated will be identified.

    Raises:
        RequestError: if the model cannot do what a field asks for; it names the field.
    """
    capabilities = info.capabilities
    if not capabilities.word_timestamps:
        _refuse_times(fields)
    if fields.itn and not capabilities.itn:
        message = "The model cannot be asked to write numbers as people do; format=written does so by grammars."
        raise _unsupported("itn", message)
    if not info.takes_prompts:
        if fields.target_language not in (None, fields.language):
            raise _unsupported("target_language", "The model does not translate.")
        if not fields.punctuation and capabilities.punctuation:
            raise _unsupported("punctuation", "The model cannot leave out punctuation.")
        return DEFAULT_PROMPT
    language, target = fields.language or assumed, fields.target_language
    if target not in (None, fields.language):
        if not capabilities.translation:
            raise _unsupported("target_language", "The model does not translate.")
        if fields.language is None and assumed is not None:
            raise RequestError(
                "A translation needs the spoken language: set language.",
                code=ErrorCode.MISSING_REQUIRED_PARAMETER,
                param="language",
            )
        if language is not None and ENGLISH not in (language, target):
            message = f"The model translates from English and into it, not {_named(language)} into {_named(target)}."
            raise _unsupported("target_language", message)
    is_timed = capabilities.word_timestamps and fields.response_format in _BETTER_TIMED
    return Prompt(language, target, fields.punctuation, is_timed, fields.itn)


def into_english(fields: TranscriptionForm, languages: Sequence[str], *, identifies: bool = False) -> TranscriptionForm:
    """Return the form of a translation into English: from the language named or identified, or the only foreign one.

    Args:
        fields: the form.
        languages: the model's languages; those that the form says are possible have priority.
        identifies: whether the spoken language will be identified if none is named.

    Raises:
        RequestError: if the target is not English, or the spoken language is none of these.
    """
    if fields.target_language not in (None, ENGLISH):
        raise _unsupported("target_language", "Translations are into English; transcriptions take other targets.")
    if identifies:
        return fields.model_copy(update={"target_language": ENGLISH})
    possible = fields.languages or languages
    foreign = set(possible) - {ENGLISH}
    if fields.language is None and len(foreign) != 1:
        raise RequestError(
            f"The model needs the spoken language: set language, to one of {', '.join(possible)}.",
            code=ErrorCode.MISSING_REQUIRED_PARAMETER,
            param="language",
        )
    spoken = fields.language or foreign.pop()
    return fields.model_copy(update={"language": spoken, "target_language": ENGLISH})


def _refuse_times(fields: TranscriptionForm) -> None:
    if fields.response_format in _TIMED:
        message = f"The model does not give the times of words, which {fields.response_format} needs."
        raise _unsupported("response_format", message)
    if fields.response_format == "verbose_json" and "word" in fields.timestamp_granularities:
        raise _unsupported("timestamp_granularities", "The model does not give the times of words.")


def _named(language: str | None) -> str:
    return "" if language is None else NAMES.get(language, language).capitalize()


def _unsupported(param: str, message: str) -> RequestError:
    return RequestError(message, code=ErrorCode.UNSUPPORTED_VALUE, param=param)
