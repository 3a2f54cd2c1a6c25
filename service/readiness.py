"""What ``/readyz`` says. Before a stop it turns first, so that balancers go elsewhere while everything is answered."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Literal

from service.dispatch.dispatcher import Dispatcher

# After an answer so lately that it is ready, a balancer may send work until its next checks fail.
_AGO_SECONDS = 10.0
# The balancer of deploy/compose takes a replica out at the second refusal, at most 1.2 s after the first moment.
_NOTICE_SECONDS = 3.0


class Readiness:
    """Answers whether the service is ready, and notices whether somebody asks."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._last_ready = -math.inf
        self._is_leaving = False

    def check(self) -> Literal["ready", "loading", "draining"]:
        """Return the state, and remember when it was last ready."""
        if self._is_leaving or self._dispatcher.admission.is_draining:
            return "draining"
        if not self._dispatcher.is_ready:
            return "loading"
        self._last_ready = self._clock()
        return "ready"

    async def leave(self, hurry: asyncio.Event, most_seconds: float) -> float:
        """Be no longer ready, and give those who ask the time to notice; return the seconds that were given."""
        self._is_leaving = True
        began = self._clock()
        if self._last_ready >= began - _AGO_SECONDS:
            try:
                async with asyncio.timeout(min(_NOTICE_SECONDS, most_seconds)):
                    await hurry.wait()
            except TimeoutError:
                pass
        return self._clock() - began
