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
    working = asyncio.current_task()
    assert working is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        working.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and not working.uncancel():  # nothing else cancelled it
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()
