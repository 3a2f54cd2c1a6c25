"""What gives way to what: answers come before decoding and computing, where there are too few cores for all."""

import os
import sys

# A third of the share of what has none. More, and work of others on the same machine would take it all.
_NICENESS = 5


def give_way() -> None:
    """Let threads of the usual priority go before the calling one, and what it starts."""
    if sys.platform == "linux":  # elsewhere a priority is that of the whole process
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
