"""Routes to look into the batcher, for low throughput. They need an admin key."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from service.http import schemas
from service.http.authorization import ADMIN_KEY

if TYPE_CHECKING:
    from service.http.front import Backend

router = APIRouter(prefix="/debug", dependencies=[ADMIN_KEY])


class BatchCard(BaseModel):
    """A finished batch."""

    ended_at: Annotated[float, Field(description="Unix time.")]
    outcome: Annotated[str, Field(description="ok, oom, error or lost.")]
    engine: str
    model: str
    decoder: Annotated[str | None, Field(description="The model's decoder; null for its first.")]
    utterances: int
    background: Annotated[int, Field(description="Utterances that are parts of jobs.")]
    shortest_seconds: float
    longest_seconds: float
    audio_seconds: float
    padded_seconds: Annotated[float | None, Field(description="Audio with padding on the device.")]
    padding_share: float | None
    queue_seconds: Annotated[float, Field(description="Wait of the utterance that waited longest.")]
    engine_seconds: Annotated[float, Field(description="From sending the batch to its answer.")]
    infer_seconds: Annotated[float | None, Field(description="Computing time within that.")]


class Batches(BaseModel):
    """The last batches, the last one first."""

    data: list[BatchCard]


class BatchPage(BaseModel):
    """The number of batches to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=256)] = 50


@router.get("/batches", responses={"4XX": {"model": schemas.ErrorBody, "description": "An admin key is needed."}})
async def list_batches(request: Request, page: Annotated[BatchPage, Query()]) -> Batches:
    """List the last batches: their utterances, their padding, and the time of each stage."""
    backend: Backend = request.app.state.backend
    entries = [BatchCard(**entry.described()) for entry in backend.dispatcher.recent]
    return Batches(data=entries[: page.limit])
