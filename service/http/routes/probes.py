"""Routes for orchestrators and Prometheus. They never need a key, and should not be public."""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

if TYPE_CHECKING:
    from service.http.core import LocalCore

router = APIRouter()


@router.get("/healthz")
async def healthz() -> JSONResponse:
    """Answer that the front process is alive, whatever the state of engines."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", responses={503: {"description": "Loading or draining."}})
async def readyz(request: Request) -> JSONResponse:
    """Return whether new work is accepted and an engine is ready; a full queue does not change that.

    All models of the configuration must have been loaded; those that are loaded later do not count.
    """
    core: LocalCore = request.app.state.core
    models = {model.id: "ready" if model.ready else "loading" for model in core.catalog}
    status = core.readiness.check()
    return JSONResponse({"status": status, "models": models}, 200 if status == "ready" else 503)


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Export the metrics, for Prometheus."""
    core: LocalCore = request.app.state.core
    core.dispatcher.update_gauges()
    return Response(await core.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
