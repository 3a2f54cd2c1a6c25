"""A process that keeps freed memory does not pay for the pages of its large tensors again and again."""

import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys, torch
from models.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(8 * 2**20).sum()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is not glibc")
def test_large_tensors_take_the_memory_of_those_before():
    command = [sys.executable, "-c", _FAULTS]

    usual, kept = (int(subprocess.check_output([*command, how])) for how in ("leave", "keep"))

    assert usual > 20 * 8000  # 32 MiB are 8,192 pages
    assert kept < usual / 5
