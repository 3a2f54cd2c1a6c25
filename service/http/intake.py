"""Uploads are taken in no faster than they are decoded, so that the event loop has time for everybody else.

Receiving an upload is work of the event loop. When a burst of them comes, the loop would receive all of them before it
answers anything else, only for them to wait for a thread that decodes. Those that have to wait lie in the buffers of
the network instead.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# An upload that is decoded for longer is long, and may be for minutes: it leaves room for others.
_SHORT_SECONDS = 0.05


class Intake:
    """The uploads whose bodies are not asked for yet, in the order in which they came.

    One at a time is let through, with one round of the event loop for all others in between, while fewer than so many
    are about to be decoded. A client that sends slowly keeps nobody waiting: only what it has sent takes time.

    Args:
        most_undecoded: uploads that may have been received and not yet decoded when one more is let through.
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
        """Count an upload that was received until it is decoded, or turns out to be long."""
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
        """See to it that the next one is let through in the next round of the loop."""
        if self._waiting and not self._is_passing and self._has_room:
            self._is_passing = True
            asyncio.get_running_loop().call_soon(self._let_through)

    def _let_through(self) -> None:
        self._is_passing = False
        while self._waiting and self._has_room:
            let_through = self._waiting.popleft()
            if not let_through.done():  # whoever waited may have been cancelled
                let_through.set_result(None)
                break
        self._go_on()
