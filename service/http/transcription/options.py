"""From a form and its model to the options of a transcription, or the error if the model cannot do what it asks for.

Models with prompts (Canary) have several languages, translate, and write times or punctuation if the prompt says so.
Other models get an empty prompt.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cached_property

from starlette.datastructures import FormData
from starlette.types import Receive

from service.dispatch.identification import Identification
from service.dispatch.utterance import Lane
from service.http.errors import missing, unsupported
from service.http.front import Front
from service.http.telemetry import Record
from service.http.transcription.form import TranscriptionForm
from service.http.transcription.loaded_model import LoadedModel
from service.http.wire.disconnect import unless_client_leaves
from service.text_language import detect_languages
from service.threads import in_thread
from transcripts.languages import NAMES
from transcripts.prompt import DEFAULT_PROMPT, ENGLISH, Prompt
from transcripts.spoken_language import Spoken, possible_languages
from transcripts.subtitles import CueSize
from transcripts.transcription import Language, LanguageSource, Task

# Formats that need times, and those that use them.
_TIMED = ("srt", "vtt", "diarized_json")
_BETTER_TIMED = (*_TIMED, "verbose_json")


@dataclass(frozen=True)
class TranscriptionOptions:
    """The options of a transcription: a validated form, and the model, decoder and prompt that it names.

    Attributes:
        threads: threads for detecting languages.
        identification: how the spoken language is identified; None if it is known, assumed, or detected in the text.
    """

    fields: TranscriptionForm
    model: LoadedModel
    lane: Lane
    prompt: Prompt
    threads: Executor
    identification: Identification | None = None

    @cached_property
    def language(self) -> Language:
        """Language and task of the text; a language that must be detected is None."""
        language, source = self._spoken
        # Without prompts, a target is the spoken language that the request names.
        target = self.fields.target_language if self.model.takes_prompts else None
        task: Task = "transcribe" if target in (None, language) else "translate"
        return Language(task, target or language, "request" if target else source)

    @property
    def _spoken(self) -> tuple[str | None, LanguageSource]:
        fields, spoken = self.fields, self.model.languages
        if fields.language and self.model.ensures(fields.language):
            return fields.language, "request"
        if fields.language:
            return None, "text"
        if len(spoken) == 1:
            return spoken[0], "model"
        if self.identification:
            return None, "audio"
        return (self.model.assumed_language(fields), "assumed") if self.model.takes_prompts else (None, "text")

    async def detect_language(self, segments: Callable[[], Sequence[str]]) -> Language:
        """Return language and task of a text; the language is detected, in a thread, if it is not known.

        If it cannot be detected, that of the request is assumed. `segments` returns the texts of its segments.
        """
        language = self.language
        if language.code or language.source != "text":
            return language
        named = self.fields.language
        among = self.model.languages if named else self.fields.languages or self.model.languages
        whole, each = await in_thread(self.threads, lambda: detect_languages(segments(), among))
        if whole is None:
            return self._assumed(language)
        return replace(language, code=whole.language, probability=whole.probability, segments=each)

    def _assumed(self, language: Language) -> Language:
        """Return the language that the request names for a text that does not tell its own."""
        named = self.fields.language
        return replace(language, code=named, source="assumed") if named and not language.code else language

    def identified(self, recording: Spoken | None, segments: Sequence[Spoken | None]) -> Language:
        """Return language and task of a text whose spoken language was identified, or that the model has tagged.

        The recording has none if there was nothing to identify, or no tag.
        """
        text, target = self.language, self.fields.target_language
        if recording is None:
            return self._assumed(text)
        if target:
            return replace(text, task="transcribe" if target == recording.language else "translate")
        source: LanguageSource = text.source if self.identification else "model"
        known = recording.language, source, recording.probability, segments
        return Language(text.task, *known)

    @property
    def language_tags(self) -> Mapping[int, str]:
        """Code of a language by the token with which the model names it; empty if the language is known anyway."""
        return {} if self.language.code or self.identification else self.model.info.language_tags

    @property
    def cue_size(self) -> CueSize:
        """The size of cues."""
        fields = self.fields
        return CueSize.of(fields.subtitle_characters, fields.subtitle_lines, fields.subtitle_seconds)

    @property
    def token_bytes(self) -> Sequence[bytes] | None:
        """The text of each token, if log-probabilities are wanted."""
        return self.model.ready.token_bytes if "logprobs" in self.fields.include else None

    @property
    def has_times(self) -> bool:
        """Whether the model gives times of words."""
        return self.model.info.capabilities.word_timestamps

    @property
    def has_segments(self) -> bool:
        """Whether the answer lists segments with their share of speech."""
        is_asked = "segment" in self.fields.timestamp_granularities
        return is_asked and self.fields.response_format == "verbose_json" and self.has_times


async def parse_options(
    front: Front,
    record: Record,
    form: FormData,
    resources: AsyncExitStack,
    *,
    is_translation: bool,
    receive: Receive | None = None,
) -> TranscriptionOptions:
    """Validate a form, and find its model, which the resources keep loaded until they are closed.

    The record gets the id of the model. A client that leaves while the model is loaded on demand is noticed by the ASGI
    channel; a job has none. A translation must be into English.

    Raises:
        RequestError: if a field is wrong, or the model cannot do what it asks for, or cannot be loaded.
        ModelNotReadyError: if the model, or the language identifier, is not loaded yet.
    """
    fields = TranscriptionForm.parse(form)
    catalog = front.core.catalog
    name = fields.model or catalog.default
    if front.core.loads_on_demand and not catalog.find_at_hand(name):
        model = await _loaded(front, record, name, resources, receive)
    else:
        served = front.find_model(name)
        model = await front.hold_model(served.id, front.settings.request_timeout_seconds, resources)
    record.model = model.id
    fields = model.narrowed(fields)
    identification = _identification(front, model, fields, is_translation=is_translation)
    identifies = identification is not None
    if is_translation:
        model.check_translation()
        fields = into_english(fields, model.languages, identifies=identifies)
    assumed = None if identifies else model.assumed_language(fields)
    prompt = prompt_of(fields, model, assumed)
    lane = model.lane(fields.decoder)
    lists = (fields.phrase_lines, front.phrases.lines() if front.phrases else "")
    prompt = prompt._replace(phrases="\n".join(filter(None, lists)))
    return TranscriptionOptions(fields, model, lane, prompt, front.cut_threads, identification)


def _identification(
    front: Front, model: LoadedModel, fields: TranscriptionForm, *, is_translation: bool
) -> Identification | None:
    """Return how to identify the spoken language; None if it is named, not needed, or no identifier knows it."""
    if fields.language or not model.takes_prompts or len(model.languages) == 1:
        return None
    target = ENGLISH if is_translation else fields.target_language
    possible = possible_languages(fields.languages or model.languages, target)
    return front.identification(possible, is_exhaustive=bool(fields.languages))


async def _loaded(
    front: Front, record: Record, name: str, resources: AsyncExitStack, receive: Receive | None
) -> LoadedModel:
    """Return a model on demand, held by ``resources``, after loading it."""
    began = time.monotonic()
    try:
        loading = front.hold_model(name, front.settings.request_timeout_seconds, resources)
        return await (unless_client_leaves(receive, loading) if receive else loading)
    finally:
        record.stages["load"] = time.monotonic() - began


def prompt_of(fields: TranscriptionForm, model: LoadedModel, assumed: str | None) -> Prompt:
    """Return the prompt for a model.

    Args:
        fields: the form; its languages are checked already.
        model: the model.
        assumed: the spoken language if the form names none; None if one that can be translated will be identified.

    Raises:
        RequestError: if the model cannot do what a field asks for; it names the field.
    """
    info, capabilities = model.info, model.info.capabilities
    if not capabilities.word_timestamps:
        _refuse_times(fields)
    if fields.itn and not capabilities.itn:
        raise unsupported("itn", "The model cannot be asked to write numbers as people do.")
    if not model.takes_prompts:
        if fields.target_language not in (None, fields.language):
            raise unsupported("target_language", "The model does not translate.")
        if not fields.punctuation and capabilities.punctuation:
            raise unsupported("punctuation", "The model cannot leave out punctuation.")
        if capabilities.language:
            return DEFAULT_PROMPT._replace(language=fields.language)
        written = (fields.language,) if fields.language else fields.languages or model.configured_languages
        return DEFAULT_PROMPT._replace(written_languages=tuple(written)) if len(info.scripts) > 1 else DEFAULT_PROMPT
    language, target = fields.language or assumed, fields.target_language
    if target not in (None, fields.language):
        if not capabilities.translation:
            raise unsupported("target_language", "The model does not translate.")
        if fields.language is None and assumed is not None:
            raise missing("language", "A translation needs the spoken language: set language.")
        if language is not None and ENGLISH not in (language, target):
            message = f"The model translates from English and into it, not {_named(language)} into {_named(target)}."
            raise unsupported("target_language", message)
    is_timed = capabilities.word_timestamps and fields.response_format in _BETTER_TIMED
    return Prompt(language, target, fields.punctuation, is_timed, fields.itn)


def into_english(fields: TranscriptionForm, languages: Sequence[str], *, identifies: bool = False) -> TranscriptionForm:
    """Return the form of a translation into English: from the language named or identified, or the only foreign one.

    Of the model's languages, those that the form says are possible have priority; `identifies` tells whether the spoken
    one will be identified if none is named.

    Raises:
        RequestError: if the target is not English, or the spoken language is none of these.
    """
    if fields.target_language not in (None, ENGLISH):
        raise unsupported("target_language", "Translations are into English; transcriptions take other targets.")
    if identifies:
        return fields.model_copy(update={"target_language": ENGLISH})
    possible = fields.languages or languages
    foreign = set(possible) - {ENGLISH}
    if fields.language is None and len(foreign) != 1:
        message = f"The model needs the spoken language: set language, to one of {', '.join(possible)}."
        raise missing("language", message)
    spoken = fields.language or foreign.pop()
    return fields.model_copy(update={"language": spoken, "target_language": ENGLISH})


def _refuse_times(fields: TranscriptionForm) -> None:
    if fields.response_format in _TIMED:
        message = f"The model does not give the times of words, which {fields.response_format} needs."
        raise unsupported("response_format", message)
    if fields.response_format == "verbose_json" and "word" in fields.timestamp_granularities:
        raise unsupported("timestamp_granularities", "The model does not give the times of words.")


def _named(language: str | None) -> str:
    return "" if language is None else NAMES.get(language, language).capitalize()
