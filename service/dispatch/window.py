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

    def acquire(self, samples: int) -> asyncio.Future[None]:
        """Ask for room; the future is done when there is room, perhaps at once."""
        room = asyncio.get_running_loop().create_future()
        self._queue.append((samples, room))
        self._grant()
        return room

    def cancel(self, room: asyncio.Future[None], samples: int) -> None:
        """Give up room that was asked for, granted or not."""
        room.cancel()
        # If it was not granted yet, it now no longer blocks the queue.
        self.release(0 if room.cancelled() else samples)

    def release(self, samples: int) -> None:
        """Give room back."""
        self._held -= samples
        self._grant()

    def _grant(self) -> None:
        while self._queue:
            samples, room = self._queue[0]
            if not room.done():
                if self._held and self._held + samples > self.samples:
                    return
                self._held += samples
                room.set_result(None)
            self._queue.popleft()
