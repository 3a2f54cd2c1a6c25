"""A bound on the audio of long recordings in memory; the rest stays on disk until there is room."""

import asyncio
from collections import deque


class Window:
    """Room for audio, counted in samples; first come, first served, so that long recordings take turns."""

    def __init__(self) -> None:
        self.samples = 0  # its size; a longer part enters alone
        self._held = 0
        self._asked: dict[asyncio.Future[None], int] = {}
        self._queue: deque[asyncio.Future[None]] = deque()

    def acquire(self, samples: int) -> asyncio.Future[None]:
        """Ask for room, which `release` gives back; the future is done when there is room, perhaps at once."""
        room = asyncio.get_running_loop().create_future()
        self._asked[room] = samples
        self._queue.append(room)
        self._grant()
        return room

    def release(self, room: asyncio.Future[None]) -> None:
        """Give back room, granted or not."""
        samples = self._asked.pop(room)
        room.cancel()
        if not room.cancelled():
            self._held -= samples
        self._grant()  # if it was not granted yet, it now no longer blocks the queue

    def _grant(self) -> None:
        while self._queue:
            room = self._queue[0]
            if not room.done():
                samples = self._asked[room]
                if self._held and self._held + samples > self.samples:
                    return
                self._held += samples
                room.set_result(None)
            self._queue.popleft()
