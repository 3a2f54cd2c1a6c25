"""Routes for operators: list, load and unload models while the service runs. They need an admin key."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.dispatch.catalog import ServedModel
from service.engine.supervisor import EngineGoneError, ModelLoadError
from service.http.core import LocalCore
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, invalid
from service.http.keys.access import ADMIN_KEY
from service.http.transcription import schemas
from service.settings import model_entry

_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": schemas.ErrorBody,
        "description": "400: it cannot be loaded. 401: an admin key is needed. 403: the operator has set none. "
        "404: no such model. 408, 413: the body comes too slowly, or is too large. 409: there is one of this id, or "
        "it is being loaded or unloaded.",
    },
    503: {"model": schemas.ErrorBody, "description": "No engine is running now that could load it."},
}
_MOST_BYTES = 1 << 14
_ENGINE_SECONDS = 10  # Retry-After while no engine is running
router = APIRouter(prefix="/v1/admin/models", dependencies=[ADMIN_KEY], responses=_ERRORS)


class ModelState(BaseModel):
    """A model, its state and its memory."""

    id: str
    checkpoint: str
    state: Annotated[str, Field(description="loading, ready or leaving.")]
    requests: Annotated[int, Field(description="Requests under way.")]
    weight_bytes: Annotated[int | None, Field(description="Device memory that its weights take.")]
    load_seconds: float | None
    warmup_seconds: float | None


class ModelStates(BaseModel):
    """All models."""

    data: list[ModelState]


class NewModel(BaseModel):
    """A model to load."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="A file or folder on the server, or a name on the hub; ID=CHECKPOINT gives it another id.",
        ),
    ]


@router.get("")
async def list_models(request: Request) -> ModelStates:
    """List the models, with those that are being loaded or unloaded."""
    return ModelStates(data=[_state(model) for model in _core(request).catalog.served])


async def _new_model(request: Request) -> NewModel:
    """Read the body; the framework would read one of any size, and before it looks at the key."""
    body = b""
    try:
        async with asyncio.timeout(request.app.state.front.settings.receive_timeout_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > _MOST_BYTES:
                    message = f"The body is larger than the {_MOST_BYTES} bytes that it may have."
                    raise RequestError(message, code=ErrorCode.FIELDS_TOO_LARGE)
        return NewModel.model_validate_json(body)
    except TimeoutError:
        raise RequestError("The body did not arrive in time.", code=ErrorCode.REQUEST_TIMEOUT) from None
    except ValidationError as error:
        fault = error.errors()[0]
        raise invalid(str(fault["loc"][-1]) if fault["loc"] else "body", fault["msg"]) from None


@router.post(
    "",
    status_code=201,
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": NewModel.model_json_schema()}}, "required": True}
    },
)
async def load_model(request: Request, new: Annotated[NewModel, Depends(_new_model)]) -> ModelState:
    """Load a model, while the others go on; answers when it is ready."""
    try:
        model, checkpoint = model_entry(new.checkpoint)
    except ValueError as error:
        raise RequestError(f"{error}.", code=ErrorCode.INVALID_VALUE, param="checkpoint") from None
    try:
        return _state(await _core(request).residency.load_for_operator(model, checkpoint))
    except KeyError:
        raise RequestError(f"There is a model {model!r}.", code=ErrorCode.MODEL_EXISTS) from None
    except ModelLoadError as error:
        message = f"The model {model!r} cannot be loaded: {error}."
        if isinstance(error, EngineGoneError):
            raise RequestError(
                message, code=ErrorCode.MODEL_LOAD_FAILED, retry_after=_ENGINE_SECONDS, should_retry=True
            ) from None
        raise RequestError(message, code=ErrorCode.MODEL_LOAD_FAILED, param="checkpoint", status=400) from None


@router.delete("/{model:path}")
async def unload_model(request: Request, model: str) -> JSONResponse:
    """Unload a model when its requests under way are answered; answers when its memory is free."""
    core = _core(request)
    catalog = core.catalog
    if model not in catalog or catalog[model].identifies:
        raise RequestError(f"The model {model!r} does not exist.", code=ErrorCode.MODEL_NOT_FOUND)
    try:
        await core.residency.unload(model)
    except KeyError:
        raise RequestError(f"The model {model!r} is being loaded or unloaded.", code=ErrorCode.MODEL_BUSY) from None
    return JSONResponse({"id": model, "object": "model", "deleted": True})


def _core(request: Request) -> LocalCore:
    core: LocalCore = request.app.state.core
    return core


def _state(model: ServedModel) -> ModelState:
    ready = model.ready
    return ModelState(
        id=model.id,
        checkpoint=model.checkpoint,
        state="leaving" if model.is_leaving else "ready" if ready else "loading",
        requests=model.users,
        weight_bytes=ready.weight_bytes if ready else None,
        load_seconds=ready.load_seconds if ready else None,
        warmup_seconds=ready.warmup_seconds if ready else None,
    )
