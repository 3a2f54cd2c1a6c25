"""Running an asynchronous generator ahead of its consumer."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic, TypeVar

T = TypeVar("T")


class Pump(Generic[T]):
    """Runs a generator in a task of its own, and keeps what it yields.

    Args:
        generator: the generator.
    """

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._yielded: asyncio.Queue[T | Exception | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(generator))

    @property
    def has_ended(self) -> bool:
        """Whether the generator has ended, or failed."""
        return self._task.done()

    async def items(self) -> AsyncGenerator[T, None]:
        """Yield what the generator yields; iterate once.

        Raises:
            Exception: the error of the generator, in its place.
        """
        while (item := await self._yielded.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    async def aclose(self) -> None:
        """Close the generator."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, generator: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(generator):
                async for item in generator:
                    self._yielded.put_nowait(item)
            self._yielded.put_nowait(None)
        except Exception as error:  # noqa: BLE001  # raised where it is iterated
            self._yielded.put_nowait(error)
