"""Priorities of threads: where cores are scarce, answering requests comes before decoding and computing."""

import os
import sys

# Niceness 10 is a tenth of a normal thread's share of CPU. With a third (5), six decoding threads had more of a core
# than the event loop, and refusals waited for a second (docs/performance.md).
_NICENESS = 10


def give_way() -> None:
    """Lower the priority of the calling thread, and of what it starts."""
    if sys.platform == "linux":  # elsewhere it would lower the priority of the whole process
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
