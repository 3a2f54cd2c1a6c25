"""Routes that describe the models, by OpenAI's fields and by `steno`, which has the model's abilities."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from service.dispatch.catalog import ServedModel
from service.http.front import Front
from service.http.keys.access import KEY
from service.http.transcription.loaded_model import LoadedModel

router = APIRouter(prefix="/v1/models", dependencies=[KEY])


@router.get("")
async def list_models(request: Request) -> JSONResponse:
    """List the models and their abilities; of a model that is not loaded, only the name."""
    front, core = request.app.state.front, request.app.state.core
    cards = {model.id: _card(front, model) for model in core.catalog.served if not model.is_leaving}
    absent = [_card(front, model) for model in await core.demand.ids() if model not in cards]
    return JSONResponse({"object": "list", "data": [*cards.values(), *absent]})


@router.get("/{name:path}")
async def get_model(request: Request, name: str) -> JSONResponse:
    """Describe one model."""
    front, core = request.app.state.front, request.app.state.core
    if core.catalog.find(name) is None and await core.demand.may_load(name):
        return JSONResponse(_card(front, name))
    return JSONResponse(_card(front, front.find_model(name)))


def _card(front: Front, model: ServedModel | str) -> dict[str, Any]:
    """Describe a model or, by its name, one that a request would load."""
    if isinstance(model, str):
        name, state, loaded = model, "absent", None
    else:
        name, loaded = model.id, front.loaded_model(model)
        state = "ready" if loaded else "loading"
    details = {"state": state, "abilities": _abilities(front, loaded) if loaded else None}
    return {"id": name, "object": "model", "created": front.started, "owned_by": "steno", "steno": details}


def _abilities(front: Front, loaded: LoadedModel) -> dict[str, Any]:
    """Return the abilities of a loaded model; docs/api.md says what each field means."""
    info, settings, languages = loaded.info, front.settings, loaded.languages
    can, vocabulary = info.capabilities, info.vocabulary
    return {
        "family": info.family,
        "parameters": info.parameters,
        "tasks": ["transcribe", "translate"] if can.translation else ["transcribe"],
        "languages": {"spoken": languages, "written": languages},
        "language_source": _language_source(front, loaded),
        "decoders": info.decoders,
        "word_timestamps": can.word_timestamps,
        "punctuation": "never" if not can.punctuation else "optional" if loaded.takes_prompts else "always",
        "itn": can.itn,
        "vocabulary": None if vocabulary is None else {"kind": vocabulary.kind, "size": vocabulary.size},
        "sample_rate": loaded.ready.sample_rate,
        "longest_recording_seconds": settings.max_audio_seconds,
        "longest_utterance_seconds": settings.edges[-1],
        "dtype": info.dtype,
        "device": info.device,
    }


def _language_source(front: Front, loaded: LoadedModel) -> str:
    """Return how the language is known if a request does not name it."""
    if len(loaded.languages) == 1 or loaded.info.language_tags:
        return "model"
    if not loaded.takes_prompts:
        return "text"
    identifier = front.core.catalog.identifier
    if identifier is None:
        return "assumed"
    known = loaded.languages if identifier.ready is None else identifier.ready.info.languages or ()
    return "assumed" if set(known).isdisjoint(loaded.languages) else "audio"
