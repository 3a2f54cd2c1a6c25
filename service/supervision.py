"""Child processes that are kept running: how they are started, ended, and started again."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from service.shared_audio import shared_file

# In a row; then the machine or the configuration is at fault, and the service ends, so that its orchestrator knows.
_MOST_FAILED_STARTS = 5
_BACKOFF_SECONDS = (0.0, 0.5, 2.0, 5.0, 10.0)
_SHORTAGE_SECONDS = 1.0  # between attempts while the system has no room for a process


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started.

    Attributes:
        process: the process.
        connection: our end of its socket.
        memory: descriptor of an unnamed file that both can map.
    """

    process: asyncio.subprocess.Process
    connection: socket.socket
    memory: int


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], inherited: Mapping[str, int] | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """Start a process; the flags ``--socket`` and ``--memory`` name the descriptors that it inherits.

    If the block fails, our descriptors are closed, and the process exits at the end of its socket.

    Args:
        command: its command line, to which the flags are added.
        inherited: further descriptors that it inherits, by their flags.
        environment: its environment variables; None: ours.

    Raises:
        OSError: if there is no descriptor, no process or no memory for it.
    """
    with contextlib.ExitStack() as if_it_fails:
        ours, theirs = socket.socketpair()
        if_it_fails.enter_context(ours)
        with theirs:
            memory = shared_file()
            if_it_fails.callback(os.close, memory)
            descriptors = {"--socket": theirs.fileno(), "--memory": memory, **(inherited or {})}
            process = await asyncio.create_subprocess_exec(
                *command,
                *(part for flag, number in descriptors.items() for part in (flag, str(number))),
                pass_fds=tuple(descriptors.values()),
                stdin=asyncio.subprocess.DEVNULL,
                env=environment,
            )
        yield Child(process, ours, memory)
        if_it_fails.pop_all()


async def end(process: asyncio.subprocess.Process, patience: float) -> None:
    """Wait for a process to exit; kill it after ``patience`` seconds."""
    try:
        await asyncio.wait_for(process.wait(), patience)
    except TimeoutError:
        kill(process)
        await process.wait()


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()


class Restarts:
    """The starts of a process that is kept running, and the pauses between them.

    Args:
        stopping: ends each pause when it is set.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._failed = 0

    def note(self, *, has_failed: bool) -> None:
        """Count a start that failed; one that did not ends the row."""
        self._failed = self._failed + 1 if has_failed else 0

    @property
    def are_futile(self) -> bool:
        """Whether too many starts have failed in a row."""
        return self._failed >= _MOST_FAILED_STARTS

    async def pause(self) -> None:
        """Pause before the next start: the longer, the more have failed in a row."""
        await self._pause(_BACKOFF_SECONDS[min(self._failed, len(_BACKOFF_SECONDS) - 1)])

    async def pause_for_room(self) -> None:
        """Pause because the system has no room for a process."""
        await self._pause(_SHORTAGE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
