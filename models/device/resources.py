"""How many processors, and how much memory, this process may use: a container's limits count.

PyTorch and OpenMP do not see a CPU limit, which is a share of time. With two of 64 processors they would start 64
threads for each batch, and the kernel would stop all of them for most of each tenth of a second.
"""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_Reader = Callable[[Path], float | None]


def processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use, by its affinity and its CPU limit, rounded up.

    The limit is the lowest of its control group and of those above it, as Docker's `--cpus` and Kubernetes set it
    (Linux: `cpu.max` of cgroup v2, `cpu.cfs_quota_us` of v1).

    Args:
        root: where /proc and /sys are.
    """
    limits = _limits(root, "cpu", _cpu_limit, _cpu_limit_of_v1)
    return min([_affinity(), *(math.ceil(limit) for limit in limits)])


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process may use: that of the machine, or the limit of its control groups.

    Args:
        root: where /proc and /sys are.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *map(int, _limits(root, "memory", _memory_limit, _memory_limit_of_v1))])


def limit_threads(root: Path = Path("/")) -> None:
    """Have OpenMP, and so PyTorch, start no more threads than the CPU limit allows, here and in later child processes.

    It reads its environment when it is loaded, so call this before torch is imported. What the environment says
    already stays.
    """
    if (limit := processors(root)) < _affinity():
        os.environ.setdefault("OMP_NUM_THREADS", str(limit))


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limits(root: Path, controller: str, limit: _Reader, limit_of_v1: _Reader) -> Iterator[float]:
    """Yield the limits of the control groups that this process is in."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return  # not Linux
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield from _limits_up(root / "sys/fs/cgroup", group, limit)
        elif controller in controllers.split(","):
            yield from _limits_up(root / "sys/fs/cgroup" / controller, group, limit_of_v1)


def _limits_up(mount: Path, group: str, read: _Reader) -> Iterator[float]:
    """Yield the limits of a group and of those above it.

    A container may see the host's path of its group, and only this group mounted; so a folder may be missing.
    """
    folder = mount / group.lstrip("/")
    for one in (folder, *folder.parents):
        try:
            limit = read(one)
        except (OSError, ValueError, ZeroDivisionError):
            limit = None
        if limit:
            yield limit
        if one == mount:
            return


def _cpu_limit(group: Path) -> float | None:
    quota, period = (group / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def _cpu_limit_of_v1(group: Path) -> float | None:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    return quota / int((group / "cpu.cfs_period_us").read_text()) if quota > 0 else None


def _memory_limit(group: Path) -> float | None:
    limit = (group / "memory.max").read_text().strip()
    return None if limit == "max" else int(limit)


def _memory_limit_of_v1(group: Path) -> float | None:
    return int((group / "memory.limit_in_bytes").read_text())
