"""All routes: the API, which may need a key, and those for operators."""

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer

from service.http import admin, debug, jobs, schemas, transcriptions
from service.http.cards import ModelCard, ModelList, absent_card, card

if TYPE_CHECKING:
    from service.http.front import Backend, Front


class _Authorize(HTTPBearer):
    """Checks the key. FastAPI's own check has an error of another shape; of it, the API's description remains."""

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        request.state.record.caller = request.app.state.front.access.authorize(request.headers)


_authorize = _Authorize(scheme_name="Key", description="A key, if the operator has set any.")
_NOT_AUTHORIZED: dict[int | str, dict[str, Any]] = {
    401: {"model": schemas.ErrorBody, "description": "A key is needed, and none or a wrong one was given."}
}

# Probes and metrics never need a key, and should not be public.
api = APIRouter(prefix="/v1", dependencies=[Depends(_authorize)], responses=_NOT_AUTHORIZED)
transcription = APIRouter(prefix="/v1", dependencies=[Depends(_authorize)], responses=_NOT_AUTHORIZED)
transcription.include_router(transcriptions.router)
api.include_router(jobs.router)
operations = APIRouter()
operations.include_router(debug.router)
administration = APIRouter(prefix="/v1")
administration.include_router(admin.router)


@api.get("/models")
async def list_models(request: Request) -> ModelList:
    """List the models and their abilities; of a model that is not loaded, only the name."""
    front, backend = _state(request)
    cards = {model.id: card(front, model) for model in backend.dispatcher.catalog.served if not model.is_leaving}
    absent = [absent_card(front, model) for model in await backend.demand.ids() if model not in cards]
    return ModelList(data=[*cards.values(), *absent])


@api.get("/models/{name:path}", responses={"4XX": {"model": schemas.ErrorBody, "description": "No such model."}})
async def get_model(request: Request, name: str) -> ModelCard:
    """Describe one model."""
    front, backend = _state(request)
    if backend.dispatcher.catalog.find(name) is None and await backend.demand.may_load(name):
        return absent_card(front, name)
    return card(front, front.find_model(name))


@operations.get("/healthz")
async def healthz() -> JSONResponse:
    """Answer that the front process is alive, whatever the state of engines."""
    return JSONResponse({"status": "ok"})


@operations.get("/readyz", responses={503: {"description": "Loading or draining."}})
async def readyz(request: Request) -> JSONResponse:
    """Return whether new work is accepted and an engine is ready; a full queue does not change that.

    All models of the configuration must have been loaded; those that are loaded later do not count.
    """
    dispatcher = request.app.state.backend.dispatcher
    models = {model.id: "ready" if model.ready else "loading" for model in dispatcher.catalog}
    if dispatcher.is_ready:
        return JSONResponse({"status": "ready", "models": models})
    status = "draining" if dispatcher.admission.is_draining else "loading"
    return JSONResponse({"status": status, "models": models}, 503)


@operations.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Export the metrics, for Prometheus."""
    backend: Backend = request.app.state.backend
    backend.dispatcher.update_gauges()
    return Response(await backend.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _state(request: Request) -> tuple["Front", "Backend"]:
    state = request.app.state
    return state.front, state.backend
