"""Running programs without a shell, with a timeout."""

import subprocess
from collections.abc import Sequence

_SECONDS_TO_ANSWER = 20.0


def answer(command: Sequence[str], question: str = "") -> str:
    """Return a program's output for an input; empty if it is not installed, fails or hangs."""
    try:
        done = subprocess.run(  # noqa: S603  # a fixed command
            command, input=question.encode(), capture_output=True, timeout=_SECONDS_TO_ANSWER, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", errors="replace")


def succeeds(command: Sequence[str], seconds: float) -> bool:
    """Return whether a program succeeds within ``seconds``; after that it is killed."""
    # Its output is not read, because a pipe held open by a grandchild would be waited for in spite of the timeout.
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(  # noqa: S603  # arguments of ours, the sentence is in a file
            command, stdin=nothing, stdout=nothing, stderr=nothing, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
