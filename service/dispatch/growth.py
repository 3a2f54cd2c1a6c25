"""How much of a recording may be cut while the rest of it is still arriving."""

import asyncio


class Growth:
    """How far gate 2 has accepted a recording that grows.

    Args:
        samples: the length that is accepted.

    Attributes:
        samples: the length that is accepted; more may be decoded already.
        ended: time of the event loop at which it was whole; None before.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.ended: float | None = None
        self._changed = asyncio.Event()

    def grow(self, samples: int) -> None:
        """Set the length that is accepted."""
        self.samples = samples
        self._changed.set()

    def end(self) -> None:
        """Record that it is whole."""
        self.ended = asyncio.get_running_loop().time()
        self._changed.set()

    async def until(self, samples: int) -> None:
        """Wait until ``samples`` are accepted, or it is whole."""
        while self.samples < samples and self.ended is None:
            self._changed.clear()
            await self._changed.wait()
