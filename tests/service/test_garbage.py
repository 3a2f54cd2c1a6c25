import asyncio
import contextlib
import subprocess
import sys

import pytest

from service import garbage

# A full collection happens by itself when there are a quarter more objects than at the last one.
BY_ITSELF = """
import gc
from service import garbage

full = []
gc.callbacks.append(lambda phase, info: full.append(1) if info["generation"] == 2 and phase == "start" else None)
{}
before = len(full)
kept = [[] for _ in range(1_000_000)]
print(len(full) - before)
"""


@pytest.mark.parametrize(("call", "happens"), [("", True), ("garbage.take_over()", False)])
def test_no_full_collection_happens_by_itself(call, happens):
    run = subprocess.run([sys.executable, "-c", BY_ITSELF.format(call)], capture_output=True, text=True, check=True)

    assert (int(run.stdout) > 0) == happens


def collections(requests: int, rounds: int, monkeypatch) -> int:
    """The number of collections in some rounds, with some requests under way."""
    monkeypatch.setattr(garbage, "_EVERY_SECONDS", 0.0)
    collected, asked = [], 0

    async def main() -> None:
        done = asyncio.Event()

        def under_way() -> int:
            nonlocal asked
            asked += 1
            if asked == rounds:
                done.set()
            return requests

        collecting = asyncio.create_task(garbage.collect(under_way, lambda: collected.append(asked)))
        await done.wait()
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting

    asyncio.run(main())
    return len(collected)


def test_collections_wait_for_quiet_but_not_for_ever(monkeypatch):
    assert collections(3, 10, monkeypatch) == 10
    assert collections(1000, 59, monkeypatch) == 0
    assert collections(1000, 120, monkeypatch) == 2
