"""How much of a recording may be cut while the rest of it is still arriving."""

import asyncio


class Growth:
    """The length of a recording that grows.

    Args:
        samples: its length so far.

    Attributes:
        samples: its length so far; it may have more samples already, which gate 2 has not accepted yet.
        ended: time of the event loop at which it was whole; None before.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.ended: float | None = None
        self._changed = asyncio.Event()

    def grow(self, samples: int) -> None:
        """Set its length so far."""
        self.samples = samples
        self._changed.set()

    def end(self) -> None:
        """Record that it is whole."""
        self.ended = asyncio.get_running_loop().time()
        self._changed.set()

    async def until(self, samples: int) -> None:
        """Wait until it has a length, or is whole. One task may wait at a time."""
        while self.samples < samples and self.ended is None:
            self._changed.clear()
            await self._changed.wait()
