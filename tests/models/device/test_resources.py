import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.device.resources import limit_threads, memory_bytes, processors

ALLOWED = len(os.sched_getaffinity(0))
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine(root: Path, groups: str, **limits: str) -> Path:
    """Make the files of a machine.

    Args:
        root: where.
        groups: the control groups of this process.
        limits: the content of cpu.max by the folder of its control group, with __ for each slash.
    """
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, limit in limits.items():
        folder = root / "sys/fs/cgroup" / name.replace("__", "/").removeprefix("top")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(limit)
    return root


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max 100000\n", ALLOWED), ("100000 100000\n", 1), ("5000 100000\n", 1), ("99900000 100000\n", ALLOWED)],
)
def test_the_limit_of_a_container_counts(tmp_path, limit, expected):
    assert processors(machine(tmp_path, "0::/\n", top=limit)) == expected


@pytest.mark.parametrize("groups", ["0::/pod/one\n", "4:memory:/other\n0::/pod/one\n"])
def test_the_lowest_limit_of_all_groups_counts(tmp_path, groups):
    root = machine(tmp_path, groups, pod="100000 100000\n", pod__one="max 100000\n")

    assert processors(root) == 1


def test_a_group_whose_folder_is_not_mounted_has_the_limit_of_the_top(tmp_path):
    assert processors(machine(tmp_path, "0::/path/of/the/host\n", top="100000 100000\n")) == 1


@pytest.mark.parametrize(("quota", "expected"), [("-1\n", ALLOWED), ("150000\n", min(2, ALLOWED)), ("100000\n", 1)])
def test_the_first_version_of_control_groups_counts_too(tmp_path, quota, expected):
    root = machine(tmp_path, "3:cpuset:/\n2:cpu,cpuacct:/docker/4f\n")
    group = root / "sys/fs/cgroup/cpu/docker/4f"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text(quota)
    (group / "cpu.cfs_period_us").write_text("100000\n")

    assert processors(root) == expected


@pytest.mark.parametrize("limit", ["", "max\n", "many 100000\n", "0 0\n", "100000 0\n"])
def test_what_is_no_limit_is_none(tmp_path, limit):
    assert processors(machine(tmp_path, "0::/\n", top=limit)) == ALLOWED


def test_without_control_groups_affinity_alone_counts(tmp_path):
    program = """
import os
from models.device.resources import processors
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(processors())
"""
    counted = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert counted.stdout == "1\n"
    assert processors(tmp_path) == ALLOWED


@pytest.mark.parametrize(
    ("limit", "expected"), [("max\n", MACHINE), ("1073741824\n", 1 << 30), (f"{1 << 60}\n", MACHINE), ("", MACHINE)]
)
def test_the_memory_limit_of_a_container_counts(tmp_path, limit, expected):
    root = machine(tmp_path, "0::/pod\n")
    group = root / "sys/fs/cgroup/pod"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(limit)

    assert memory_bytes(root) == expected


@pytest.mark.parametrize(("limit", "expected"), [("1073741824\n", 1 << 30), ("9223372036854771712\n", MACHINE)])
def test_so_does_that_of_the_first_version(tmp_path, limit, expected):
    root = machine(tmp_path, "5:memory:/docker/4f\n")
    group = root / "sys/fs/cgroup/memory"  # the container's own group is the one that is mounted
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(limit)

    assert memory_bytes(root) == expected


def test_openmp_is_limited_unless_the_environment_says_something(tmp_path, monkeypatch):
    root = machine(tmp_path, "0::/\n", top="100000 100000\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    limit_threads(tmp_path / "no limit")
    assert "OMP_NUM_THREADS" not in os.environ
    if ALLOWED > 1:
        limit_threads(root)
        assert os.environ["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    limit_threads(root)
    assert os.environ["OMP_NUM_THREADS"] == "3"
