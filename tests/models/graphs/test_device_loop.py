"""Loops that a GPU runs by itself; without one, that their kernel assembles and that their absence is said once."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from models.graphs import device_loop
from models.graphs.capture import captured_graph
from models.graphs.device_loop import DeviceLoop, has_loops
from models.graphs.pool import Pool
from tests.models.no_waiting import no_waiting

if os.environ.get("CI") != "true":
    pytest.importorskip(
        "triton", reason="Triton, which has an assembler, is not installed; on Linux, make setup does it"
    )


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_the_kernel_that_reads_the_flag_assembles(tmp_path, architecture):
    import triton

    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    source = tmp_path / "condition.ptx"
    source.write_bytes(device_loop._CONDITION.rstrip(b"\0"))

    done = subprocess.run(
        [assembler, "-c", f"-arch={architecture}", source, "-o", tmp_path / "condition.o"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_where_there_is_no_driver_the_log_says_so_once(caplog):
    has_loops.cache_clear()

    assert not has_loops(torch.device("cuda"))
    assert not has_loops(torch.device("cuda"))

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "fast path loop failed, plain operations do its work"
    ]


@pytest.fixture
def counting():
    """A loop that counts up to a number and its counter: the number, the counter, the loop."""
    assert has_loops(torch.device("cuda")), "this driver has no WHILE nodes"
    until, count = torch.zeros(1, dtype=torch.int64, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    going = torch.zeros(1, dtype=torch.bool, device="cuda")

    def work():
        count.add_(1)
        going.copy_(count < until)

    loop = DeviceLoop(captured_graph(work, count.device, Pool()), going)
    return until, count, loop


@pytest.mark.gpu
@pytest.mark.parametrize("number", [1, 2, 3, 100, 10_000])
def test_it_goes_on_while_the_flag_is_set(counting, number):
    until, count, loop = counting

    for _ in range(3):
        until.fill_(number)
        count.zero_()
        loop.run(rounds=20_000)
        assert count.item() == number


@pytest.mark.gpu
def test_it_runs_once_at_least_and_ends_when_no_round_is_left(counting):
    until, count, loop = counting

    for number, rounds, wanted in ((0, 5, 1), (1_000_000, 7, 7), (1_000_000, 1, 1)):
        until.fill_(number)
        count.zero_()
        loop.run(rounds)
        assert count.item() == wanted


@pytest.mark.gpu
def test_the_host_does_not_wait_and_what_comes_after_does(counting):
    until, count, loop = counting
    until.fill_(1000)
    torch.cuda.synchronize()
    with no_waiting():
        for _ in range(50):
            count.zero_()
            loop.run(rounds=2000)
        doubled = count * 2

    assert doubled.item() == 2000


@pytest.mark.gpu
def test_a_thousand_loops_take_no_memory(counting):
    until, _, loop = counting
    until.fill_(3)
    loop.run(10)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]

    for _ in range(1000):
        loop.run(10)
    torch.cuda.synchronize()

    assert torch.cuda.mem_get_info()[0] >= free
