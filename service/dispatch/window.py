"""A bound on the audio of long recordings in memory; the rest stays on disk until there is room."""

import asyncio
from collections import deque


class Window:
    """Room for audio, counted in samples; first come, first served, so that long recordings take turns.

    Attributes:
        samples: size of the window. A longer part enters alone.
    """

    def __init__(self) -> None:
        self.samples = 0
        self._held = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    def ask(self, samples: int) -> asyncio.Future[None]:
        """Ask for room; the future is done when there is room, perhaps at once."""
        let_in = asyncio.get_running_loop().create_future()
        self._queue.append((samples, let_in))
        self._let_in()
        return let_in

    def withdraw(self, place: asyncio.Future[None], samples: int) -> None:
        """Give back room that was asked for, granted or not."""
        place.cancel()
        # If it was not granted yet, it now no longer blocks the queue.
        self.leave(0 if place.cancelled() else samples)

    def leave(self, samples: int) -> None:
        """Give room back."""
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
