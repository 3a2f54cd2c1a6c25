"""An answer of server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

_HEARTBEAT = b": waiting\n\n"


# Below the time after which proxies cut a silent connection.
HEARTBEAT_SECONDS = 15.0


class EventStream(StreamingResponse):
    """An answer of events; its resources are closed when it was sent, or cannot be."""

    def __init__(self, frames: AsyncIterator[bytes]) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(frames, headers=headers, media_type="text/event-stream; charset=utf-8")
        self.resources = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        async with self.resources:
            await super().__call__(scope, receive, send)


async def with_heartbeats(frames: AsyncGenerator[bytes, None], seconds: float) -> AsyncIterator[bytes]:
    """Yield frames, and a comment after ``seconds`` without any, because proxies close silent connections."""
    following = asyncio.ensure_future(anext(frames))
    try:
        while True:
            await asyncio.wait({following}, timeout=seconds)
            if not following.done():
                yield _HEARTBEAT
                continue
            try:
                ready = following.result()
            except StopAsyncIteration:
                return
            yield ready
            following = asyncio.ensure_future(anext(frames))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await frames.aclose()


def frame(event: dict[str, Any] | bytes) -> bytes:
    """Return the bytes of an event, given as an object or as JSON."""
    return b"data: %b\n\n" % (orjson.dumps(event) if isinstance(event, dict) else event)
