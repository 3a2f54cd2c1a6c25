"""The route that lists the last batches, to find out why throughput is low."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from service.http.keys.access import ADMIN_KEY
from service.http.transcription import schemas

if TYPE_CHECKING:
    from service.http.core import LocalCore

router = APIRouter(prefix="/debug", dependencies=[ADMIN_KEY])


class BatchCard(BaseModel):
    """A finished batch."""

    ended_at: Annotated[float, Field(description="Unix time.")]
    outcome: Annotated[str, Field(description="ok, oom (out of the device's memory), error, or lost with the engine.")]
    engine: str
    model: str
    decoder: Annotated[str | None, Field(description="The decoder; null for the model's first.")]
    utterances: int
    background: Annotated[int, Field(description="Number of utterances of jobs.")]
    shortest_seconds: float
    longest_seconds: float
    audio_seconds: float
    padded_seconds: Annotated[float | None, Field(description="Audio and padding; null unless the outcome is ok.")]
    padding_share: float | None
    queue_seconds: Annotated[float, Field(description="Longest time from an utterance's acceptance to sending.")]
    engine_seconds: Annotated[float, Field(description="From sending to outcome, with the wait for earlier batches.")]
    infer_seconds: Annotated[float | None, Field(description="Computing time; null unless the outcome is ok.")]


class Batches(BaseModel):
    """The last batches."""

    data: list[BatchCard]


class BatchPage(BaseModel):
    """The number of batches to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=256)] = 50


@router.get("/batches", responses={"4XX": {"model": schemas.ErrorBody, "description": "No admin key, or wrong limit."}})
async def list_batches(request: Request, page: Annotated[BatchPage, Query()]) -> Batches:
    """List the last batches, newest first."""
    core: LocalCore = request.app.state.core
    entries = [BatchCard(**entry) for entry in core.dispatcher.recent]
    return Batches(data=entries[: page.limit])
