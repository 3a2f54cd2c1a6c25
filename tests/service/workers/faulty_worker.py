"""In place of a worker: a process that never answers. FAULTY_WORKER says whether it ends or hangs."""

import os
import signal
import sys

if os.environ["FAULTY_WORKER"] == "hangs":
    signal.pause()
sys.exit(3)
