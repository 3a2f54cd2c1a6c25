"""Priorities of threads: where cores are scarce, answering requests comes before decoding and computing."""

import os
import sys

# With niceness 10 a thread gets a tenth of a normal thread's CPU time. With niceness 5, a third, six decoding threads
# got more of a core than the event loop, and refusals took a second (docs/performance.md at 4f03a9e).
_NICENESS = 10


def give_way() -> None:
    """Lower the priority of the calling thread, and of threads and processes that it starts."""
    if sys.platform == "linux":  # elsewhere this would lower the priority of the whole process
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
