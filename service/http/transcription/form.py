"""The form of a transcription request."""

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from starlette.datastructures import FormData, UploadFile

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, invalid, missing, unsupported
from service.http.transcription.chunking import ChunkingStrategy, ServerVad
from transcripts.languages import language_code
from transcripts.phrases import MOST_WEIGHT, Phrase, PhraseError, parse_phrases, phrase_lines

ResponseFormat = Literal["json", "text", "srt", "vtt", "verbose_json", "diarized_json"]
Granularity = Literal["word", "segment"]
Inclusion = Literal["logprobs"]

_COMMA_LISTS = ("timestamp_granularities", "include", "languages")
# Entries of these may have commas.
_PHRASES = ("phrases", "keywords")
LISTS = (*_COMMA_LISTS, *_PHRASES)
AUTO = "auto"  # value of `language` that asks to detect it
# OpenAI's clients send the fields of these objects as parts `name[field]`.
_OBJECTS = {"chunking_strategy": ServerVad.model_fields}


class TranscriptionForm(BaseModel):
    """The fields of a transcription request.

    Unknown fields are ignored. An empty field counts as absent. If a field is given more than once, the last one
    counts; of a list, all do.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    file: Annotated[
        Any,
        Field(description="The recording, recognised by its content: wav, flac, mp3, ogg, webm, mp4 and others."),
        WithJsonSchema({"type": "string", "format": "binary"}),
    ]
    model: Annotated[
        str | None,
        Field(description="Id or alias of the model, as GET /v1/models lists it; unset: the default."),
    ] = None
    response_format: Annotated[ResponseFormat, Field(description="Shape of the answer.")] = "json"
    timestamp_granularities: Annotated[
        tuple[Granularity, ...], Field(description="With verbose_json: times of words, segments or both.")
    ] = ("segment",)
    include: Annotated[
        tuple[Inclusion, ...],
        Field(description="With json: the log-probability of each token, streamed or not."),
    ] = ()
    temperature: Annotated[float, Field(ge=0, le=1, description="Accepted; nothing is drawn at random.")] = 0.0
    language: Annotated[
        Annotated[str, AfterValidator(language_code)] | None,
        Field(
            description="The spoken language: `en`, `en-US`, `eng` or `english`; languages that the model lacks are "
            "refused. A model of several scripts writes those of this language. With `auto`, as with `languages`, the "
            "answer in json has the language of the text too."
        ),
    ] = None
    languages: Annotated[
        tuple[Annotated[str, AfterValidator(language_code)], ...],
        Field(description="The languages that are possible if `language` is not given."),
    ] = ()
    target_language: Annotated[
        Annotated[str, AfterValidator(language_code)] | None,
        Field(description="Language of the text, if the model translates; unset: the spoken one. An extension."),
    ] = None
    decoder: Annotated[
        Literal["ctc", "rnnt", "tdt", "aed"] | None,
        Field(description="The decoder, for models with several; unset: the first. An extension."),
    ] = None
    punctuation: Annotated[
        bool,
        Field(
            description="Whether to write punctuation and capitals, for models that can leave them out. An extension."
        ),
    ] = True
    itn: Annotated[
        bool,
        Field(
            description="Whether the model itself is asked to write numbers as people do, if its prompt has a slot for "
            "it (Canary, `abilities.itn`). An extension."
        ),
    ] = False
    phrases: Annotated[
        tuple[str, ...],
        Field(
            description="Phrases that are likely to be said, such as names: text, with a weight after a tab (0 to "
            f"{MOST_WEIGHT:g}; 1 if left out), or an object in JSON with `text` and `weight`; or many, one a line. An "
            "extension.",
        ),
    ] = ()
    keywords: Annotated[tuple[str, ...], Field(description="The same as `phrases`.")] = ()
    prompt: Annotated[str | None, Field(description="Accepted; these models take no prompt.")] = None
    subtitle_characters: Annotated[
        Annotated[int, Field(ge=16, le=200)] | SkipJsonSchema[None],
        Field(description="For srt and vtt: columns of a line; Han and kana take two. An extension."),
    ] = None
    subtitle_lines: Annotated[
        Annotated[int, Field(ge=1, le=8)] | SkipJsonSchema[None],
        Field(description="For srt and vtt: lines of a cue. An extension."),
    ] = None
    subtitle_seconds: Annotated[
        Annotated[float, Field(ge=1, le=60)] | SkipJsonSchema[None],
        Field(description="For srt and vtt: longest time of a cue. An extension."),
    ] = None
    multichannel: Annotated[
        bool,
        Field(
            description="Transcribe each channel by itself, such as the two sides of a call, instead of their mean; "
            "of a file with several audio tracks, each track. An extension."
        ),
    ] = False
    track: Annotated[
        Annotated[int, Field(ge=1, le=255)] | SkipJsonSchema[None],
        Field(
            description="Which audio track of a film, from 1; unset: the default one, else the first that is not "
            "silent. An extension."
        ),
    ] = None
    chunking_strategy: Annotated[
        ChunkingStrategy,
        Field(description="`auto`, `none`, or an object that says at which pauses to cut; unset: `auto`."),
    ] = None
    stream: Annotated[
        bool, Field(description="Answer as server-sent events: a delta for each segment, then the whole.")
    ] = False

    _asks_language: bool = PrivateAttr(default=False)
    _phrase_lines: str = PrivateAttr(default="")

    @property
    def phrase_lines(self) -> str:
        """The phrases of both fields, as lines (transcripts/phrases.py)."""
        return self._phrase_lines

    @property
    def includes_language(self) -> bool:
        """Whether the answer names the language of its text."""
        return self._asks_language or self.response_format == "verbose_json"

    @property
    def asks_language(self) -> bool:
        """Whether the request asks for the language, with `language=auto` or `languages`; json has it only then."""
        return self._asks_language

    @classmethod
    def parse(cls, form: FormData) -> "TranscriptionForm":
        """Parse the fields, in any order and spelling (`name`, `name[]`).

        Raises:
            RequestError: if a field is missing or wrong; it names the field.
        """
        given: dict[str, list[Any]] = {}
        for name, value in form.multi_items():
            if value != "":
                # Of files, the parser keeps only the one named `file`.
                key = name if isinstance(value, UploadFile) else name.removesuffix("[]")
                given.setdefault(key, []).append(value)
        for name in _PHRASES:
            if objects := _lines_of_objects(name, given):
                given[name] = [*given.get(name, []), *objects]
        fields: dict[str, Any] = {}
        for name in _FIELDS & given.keys():
            if name in _PHRASES:
                fields[name] = given[name]
            elif name in _COMMA_LISTS:
                fields[name] = [part.strip() for value in given[name] for part in str(value).split(",")]
            else:
                fields[name] = given[name][-1]
        for name, keys in _OBJECTS.items():
            parts = {key: given[part][-1] for key in keys if (part := f"{name}[{key}]") in given}
            if parts and name not in fields:
                fields[name] = parts
        if not isinstance(fields.get("file"), UploadFile):
            raise missing("file", "The form has no file part named 'file'.")
        asks_language = str(fields.get("language", "")).strip().lower() == AUTO
        if asks_language:
            del fields["language"]
        try:
            parsed = cls(**fields)
        except ValidationError as error:
            raise fault_of(error) from None
        parsed._asks_language = asks_language or bool(parsed.languages)
        try:
            parsed._phrase_lines = _phrase_lines((*parsed.phrases, *parsed.keywords))
        except PhraseError as error:
            param = "phrases" if parsed.phrases else "keywords"
            raise invalid(param, str(error)) from None
        # `segment` is ignored: the Vercel AI SDK sends it with json too.
        if "word" in parsed.timestamp_granularities and parsed.response_format != "verbose_json":
            message = f"response_format {parsed.response_format!r} has no times of words; use verbose_json."
            raise unsupported("timestamp_granularities", message)
        if parsed.response_format == "diarized_json" and not parsed.multichannel:
            message = "Speakers are known by their channels: diarized_json needs multichannel=true."
            raise unsupported("response_format", message)
        if parsed.include and parsed.response_format != "json":
            message = f"response_format {parsed.response_format!r} cannot include logprobs; use json."
            raise unsupported("include", message)
        return parsed


_FIELDS = frozenset(TranscriptionForm.model_fields)


def _lines_of_objects(name: str, given: dict[str, list[Any]]) -> list[str]:
    """Return phrases that are objects as lines; OpenAI's clients send all texts of a list, and all weights."""
    texts, weights = given.get(f"{name}[][text]", []), given.get(f"{name}[][weight]", [])
    if weights and len(weights) != len(texts):
        raise invalid(name, f"{len(texts)} phrases have {len(weights)} weights; give each one, or none")
    return [f"{text}\t{weight}" for text, weight in zip(texts, weights, strict=True)] if weights else texts


class _WeightedPhrase(msgspec.Struct, forbid_unknown_fields=True):
    """A phrase with a weight."""

    text: str
    weight: float = 1.0


_weighted_phrase = msgspec.json.Decoder(_WeightedPhrase)


@lru_cache(16)  # many requests of a client have one list
def _phrase_lines(given: tuple[str, ...]) -> str:
    """Return the phrases of fields, each of lines or an object in JSON, as lines."""
    phrases: list[Phrase] = []
    for value in given:
        if not value.lstrip().startswith("{"):
            phrases += parse_phrases(value)
            continue
        try:
            weighted = _weighted_phrase.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise PhraseError(f"{value[:40]!r} is not an object with text and weight: {error}") from None
        phrases.append(Phrase(weighted.text, weighted.weight))
    return phrase_lines(phrases)


def form_schema() -> dict[str, Any]:
    """Return the JSON schema of the form."""
    return TranscriptionForm.model_json_schema() | {"required": ["file"]}


def request_body(form: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of a request with a recording, in any of the three ways, by that of its form."""
    described = "Where the recording is: by https, on a host that the operator allows (STENO_URL_HOSTS)."
    url = {"type": "string", "format": "uri", "maxLength": 2048, "description": described}
    fields = {name: field for name, field in form["properties"].items() if name != "file"}
    by_url = form | {"title": "UrlRequest", "properties": {"url": url, **fields}, "required": ["url"]}
    recording = {
        "type": "string",
        "format": "binary",
        "description": "The recording itself; the other fields of the form are parameters of the query.",
    }
    schemas = {"multipart/form-data": form, "application/json": by_url}
    schemas |= dict.fromkeys(("audio/*", "application/octet-stream"), recording)
    content = {media_type: {"schema": schema} for media_type, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


def fault_of(error: ValidationError) -> RequestError:
    """Return the error for a form of which a field is wrong."""
    fault = error.errors(include_url=False, include_input=False)[0]
    # Without the names that pydantic gives to the types of a field.
    where = ".".join(str(name) for name in fault["loc"] if name not in ("constrained-int", "constrained-float"))
    param = str(fault["loc"][0])
    if fault["type"] == "missing":
        return missing(param, f"The field {where!r} is missing.")
    message = f"{where}: {fault['msg'].removeprefix('Value error, ')}."
    return RequestError(message, code=ErrorCode.INVALID_VALUE, param=param)
