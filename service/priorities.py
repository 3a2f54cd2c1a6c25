"""What gives way to what: answers come before decoding and computing, where there are too few cores for all."""

import os
import sys

# A tenth of the share of what has none. With a third (5), half a dozen threads that decode had more of a core than the
# event loop, and refusals waited for a second (docs/performance.md).
_NICENESS = 10


def give_way() -> None:
    """Let threads of the usual priority go before the calling one, and what it starts."""
    if sys.platform == "linux":  # elsewhere a priority is that of the whole process
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
