"""Child processes that are kept running: how they are started, ended, and started again."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from service.shared_audio import shared_file

log = logging.getLogger("steno.supervision")

T = TypeVar("T")

# In a row; then the machine or the configuration is at fault, and the service ends, so that its orchestrator knows.
_MOST_FAILED_STARTS = 5
_BACKOFF_SECONDS = (0.0, 0.5, 2.0, 5.0, 10.0)
_SHORTAGE_SECONDS = 1.0  # between attempts while the system has no room for a process


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started."""

    process: asyncio.subprocess.Process
    connection: socket.socket  # our end of its socket
    memory: int  # descriptor of an unnamed file that both can map


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], inherited: Mapping[str, int] | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """Start a process; the flags ``--socket`` and ``--memory`` name descriptors that it inherits.

    If the block fails, our descriptors are closed, and the process exits at the end of its socket.

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


async def keep_running(
    what: str,
    start: Callable[[], Awaitable[T]],
    run: Callable[[T], Awaitable[str | None]],
    stopping: asyncio.Event,
    is_hopeless: Callable[[bool], bool],
) -> str | None:
    """Start a process again and again until ``stopping``, or until a failure that makes that hopeless; return this one.

    The pauses grow with the failures in a row. Without room for a process it is tried for as long as it takes.
    ``run`` runs a process until it is gone, and returns why it never became ready; None if it did. ``is_hopeless`` says
    whether to give up after a failure; its argument is whether there were too many in a row.
    """
    failed = 0
    while not stopping.is_set():
        try:
            process = await start()
        except OSError as error:  # no descriptor, no process, no memory
            if is_hopeless(False):
                return f"no {what} can be started: {error}"
            log.error("no process can be started now", extra={"what": what, "reason": str(error)})  # noqa: TRY400
            await _pause(stopping, _SHORTAGE_SECONDS)
            continue
        failure = await run(process)
        failed = failed + 1 if failure else 0
        if failure and not stopping.is_set() and is_hopeless(failed >= _MOST_FAILED_STARTS):
            return failure
        await _pause(stopping, _BACKOFF_SECONDS[min(failed, len(_BACKOFF_SECONDS) - 1)])
    return None


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
