"""An event loop whose clock moves only when all tasks wait for it: hours take no time, and every run is the same."""

import asyncio
import selectors


class DeadlockError(AssertionError):
    """All tasks wait for something that cannot happen any more."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting, moves the time."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise DeadlockError("nothing is ready, and no timer is set")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that begins at second 0."""

    def __init__(self):
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self):
        return self._virtual.now


def run(main):
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
