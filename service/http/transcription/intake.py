"""Receiving uploads no faster than they are decoded, so that the event loop has time for other work.

Receiving an upload is work of the event loop. In a burst, the loop would receive all uploads before anything else, only
for them to wait for a decoding thread. Instead they wait in network buffers.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# An upload whose decoding takes longer may take minutes, and stops counting.
_SHORT_SECONDS = 0.05


class Intake:
    """A queue of uploads whose bodies are not read yet.

    Uploads pass one by one, with a round of the event loop between them, while fewer than ``most_undecoded`` are
    received and not decoded. A slow client delays no other, because only received bytes take time.
    """

    def __init__(self, most_undecoded: int) -> None:
        self._most_undecoded = most_undecoded
        self._undecoded: set[object] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_passing = False

    @property
    def _has_room(self) -> bool:
        return len(self._undecoded) < self._most_undecoded

    async def turn(self) -> None:
        """Wait until an upload may be received."""
        let_through = asyncio.get_running_loop().create_future()
        self._waiting.append(let_through)
        self._go_on()
        await let_through

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Count a received upload until it is decoded, or its decoding takes long."""
        upload = object()
        self._undecoded.add(upload)
        becoming_long = asyncio.get_running_loop().call_later(_SHORT_SECONDS, self._leave, upload)
        try:
            yield
        finally:
            becoming_long.cancel()
            self._leave(upload)

    def _leave(self, upload: object) -> None:
        self._undecoded.discard(upload)
        self._go_on()

    def _go_on(self) -> None:
        """Let the next upload pass in the next round of the loop."""
        if self._waiting and not self._is_passing and self._has_room:
            self._is_passing = True
            asyncio.get_running_loop().call_soon(self._let_through)

    def _let_through(self) -> None:
        self._is_passing = False
        while self._waiting and self._has_room:
            let_through = self._waiting.popleft()
            if not let_through.done():  # the waiting request may have been cancelled
                let_through.set_result(None)
                break
        self._go_on()
