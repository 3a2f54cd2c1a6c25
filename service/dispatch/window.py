"""How much audio of long recordings is in memory at once: the rest lies on disk until places come free."""

import asyncio
from collections import deque


class Window:
    """Places for audio, counted in samples; first come, first served, so that long recordings take turns.

    Attributes:
        samples: places there are. A piece that is longer gets in alone.
    """

    def __init__(self) -> None:
        self.samples = 0
        self._held = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, samples: int) -> None:
        """Wait for a place; `leave` gives it back."""
        place = self.ask(samples)
        try:
            await place
        except asyncio.CancelledError:
            self.withdraw(place, samples)
            raise

    def ask(self, samples: int) -> asyncio.Future[None]:
        """Ask for a place; the future is done when there is one, which may be at once."""
        let_in = asyncio.get_running_loop().create_future()
        self._queue.append((samples, let_in))
        self._let_in()
        return let_in

    def withdraw(self, place: asyncio.Future[None], samples: int) -> None:
        """Give back a place that was asked for, whether there is one by now or not."""
        place.cancel()
        # One that there is not no longer stands before the others.
        self.leave(0 if place.cancelled() else samples)

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
