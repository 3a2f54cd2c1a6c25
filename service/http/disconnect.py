"""Cancelling work for a client that has left."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and cancel it when the client closes the connection.

    Raises:
        ClientDisconnect: if the client left first.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
