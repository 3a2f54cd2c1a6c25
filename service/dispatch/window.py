"""How much audio of long recordings is in memory at once: the rest lies on disk until places come free."""

import asyncio
from collections import deque


class Window:
    """Places for audio, counted in samples; first come, first served, so that long recordings take turns.

    Attributes:
        samples: Places there are. A piece that is longer gets in alone.
    """

    def __init__(self) -> None:
        self.samples = 0
        self._held = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, samples: int) -> None:
        """Wait for a place; `leave` gives it back."""
        let_in = asyncio.get_running_loop().create_future()
        self._queue.append((samples, let_in))
        self._let_in()
        try:
            await let_in
        except asyncio.CancelledError:
            # It may have been let in at the same moment; if not, it no longer stands before the others.
            self.leave(0 if let_in.cancelled() else samples)
            raise

    def leave(self, samples: int) -> None:
        """Give a place back."""
        self._held -= samples
        self._let_in()

    def _let_in(self) -> None:
        while self._queue:
            samples, let_in = self._queue[0]
            if not let_in.done():
                if self._held and self._held + samples > self.samples:
                    return
                self._held += samples
                let_in.set_result(None)
            self._queue.popleft()
