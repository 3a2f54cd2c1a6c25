"""The memory that an overload took is given back to the system."""

import subprocess
import sys

import pytest

FILL = """
import os, resource, sys
from service.memory import return_free_memory, use_few_heaps

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6

use_few_heaps()
bytearray(20_000_000)  # glibc puts all that is smaller into a heap, from when this is freed
before = megabytes()
recordings = [bytearray(os.urandom(100) * 5_000) for _ in range(400)]
full = megabytes() - before
del recordings[:-1]  # one still waits for its answer
return_free_memory()
print(full, megabytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_recordings_that_were_answered_take_no_memory_though_another_waits():
    run = subprocess.run([sys.executable, "-c", FILL], capture_output=True, text=True, check=True)

    full, left = map(float, run.stdout.split())
    assert full > 150
    assert left < 20
