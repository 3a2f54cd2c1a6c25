"""Routes that describe the models, by OpenAI's fields and by `steno`, which has the model's abilities."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from service.dispatch.catalog import ServedModel
from service.http.front import Front
from service.http.keys.access import KEY, NOT_AUTHORIZED
from service.http.transcription import schemas
from service.http.transcription.loaded_model import LoadedModel

router = APIRouter(prefix="/v1/models", dependencies=[KEY], responses=NOT_AUTHORIZED)

State = Literal["loading", "ready", "absent"]


class Languages(BaseModel):
    """Languages of a model, in ISO 639-1; empty if they are not known."""

    spoken: Annotated[list[str], Field(description="Languages that may be spoken.")]
    written: Annotated[list[str], Field(description="Languages of transcripts; so far the same.")]


class ModelVocabulary(BaseModel):
    """The vocabulary of a model."""

    kind: Annotated[str, Field(description="sentencepiece, characters, wordpiece, bpe or aggregate.")]
    size: int


class Abilities(BaseModel):
    """The abilities of a loaded model."""

    family: str
    parameters: int | None
    tasks: list[Literal["transcribe", "translate"]]
    languages: Languages
    language_source: Annotated[
        Literal["model", "text", "audio", "assumed"],
        Field(
            description="How the language is known if a request does not name it. model: it has only one, or writes "
            "it; text: detected in the transcript; audio: identified before transcription; assumed: needed, and not "
            "identified."
        ),
    ]
    decoders: Annotated[list[str], Field(description="Values of `decoder`; the first is the default.")]
    word_timestamps: Annotated[bool, Field(description="Whether it can give the times of words.")]
    punctuation: Annotated[
        Literal["always", "optional", "never"], Field(description="optional: by a request's `punctuation`.")
    ]
    itn: Annotated[bool, Field(description="Whether a request may set `itn`.")]
    formats: Annotated[
        list[Literal["spoken", "written"]],
        Field(description="Values of `format`; `written` if grammars are installed for a language that it may write."),
    ]
    vocabulary: ModelVocabulary | None
    sample_rate: Annotated[int, Field(description="In Hz; recordings of other rates are resampled to it.")]
    longest_recording_seconds: float
    longest_utterance_seconds: Annotated[float, Field(description="Recordings longer than this are cut at pauses.")]
    dtype: str
    device: str


class Details(BaseModel):
    """Steno's own description of a model."""

    state: Annotated[State, Field(description="absent: a request for it loads it, again if it is being unloaded.")]
    abilities: Annotated[Abilities | None, Field(description="null if the model is not loaded.")]


class ModelCard(BaseModel):
    """A model that requests can name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    steno: Details


class ModelList(BaseModel):
    """`GET /v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


@router.get("")
async def list_models(request: Request) -> ModelList:
    """List the models and their abilities; of a model that is not loaded, only the name."""
    front, core = request.app.state.front, request.app.state.core
    cards = {model.id: _card(front, model) for model in core.catalog.served if not model.is_leaving}
    absent = [_card(front, model) for model in await core.demand.ids() if model not in cards]
    return ModelList(data=[*cards.values(), *absent])


@router.get("/{name:path}", responses={"4XX": {"model": schemas.ErrorBody, "description": "No such model."}})
async def get_model(request: Request, name: str) -> ModelCard:
    """Describe one model."""
    front, core = request.app.state.front, request.app.state.core
    if core.catalog.find(name) is None and await core.demand.may_load(name):
        return _card(front, name)
    return _card(front, front.find_model(name))


def _card(front: Front, model: ServedModel | str) -> ModelCard:
    """Describe a model or, by its name, one that a request would load."""
    if isinstance(model, str):
        name, details = model, Details(state="absent", abilities=None)
    else:
        name, loaded = model.id, front.loaded_model(model)
        abilities = None if loaded is None else _abilities(front, loaded)
        details = Details(state="ready" if loaded else "loading", abilities=abilities)
    return ModelCard(id=name, created=front.started, owned_by="steno", steno=details)


def _abilities(front: Front, loaded: LoadedModel) -> Abilities:
    info, settings, languages = loaded.info, front.settings, loaded.languages
    can, vocabulary = info.capabilities, info.vocabulary
    return Abilities(
        family=info.family,
        parameters=info.parameters,
        tasks=["transcribe", "translate"] if can.translation else ["transcribe"],
        languages=Languages(spoken=languages, written=languages),
        language_source=_language_source(front, loaded),
        decoders=info.decoders,
        word_timestamps=can.word_timestamps,
        punctuation="never" if not can.punctuation else "optional" if info.takes_prompts else "always",
        itn=can.itn,
        formats=["spoken", "written"] if front.grammars.write_any(languages) else ["spoken"],
        vocabulary=None if vocabulary is None else ModelVocabulary(kind=vocabulary.kind, size=vocabulary.size),
        sample_rate=loaded.ready.sample_rate,
        longest_recording_seconds=settings.max_audio_seconds,
        longest_utterance_seconds=settings.edges[-1],
        dtype=info.dtype,
        device=info.device,
    )


def _language_source(front: Front, loaded: LoadedModel) -> Literal["model", "text", "audio", "assumed"]:
    """Return how the language is known if a request does not name it."""
    if len(loaded.languages) == 1 or loaded.info.language_tags:
        return "model"
    if not loaded.info.takes_prompts:
        return "text"
    identifier = front.core.catalog.identifier
    if identifier is None:
        return "assumed"
    known = loaded.languages if identifier.ready is None else identifier.ready.info.languages or ()
    return "assumed" if set(known).isdisjoint(loaded.languages) else "audio"
