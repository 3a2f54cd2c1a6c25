"""Which engines a service has: one for each device, or several that share a machine's processors."""

import re
import subprocess
import sys
from dataclasses import dataclass

_NAME = re.compile(r"(auto|cpu|cuda)(?::(\d+))?")

# In a process of its own: what a driver does to the one that asks it is not known, and the front forks none of that.
# It counts what CUDA_VISIBLE_DEVICES leaves, as PyTorch will.
_COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(count.value if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one engine runs.

    Attributes:
        name: what logs and metrics call it; no other place has it.
        device: what PyTorch calls it.
        threads: of a CPU, per batch; None: PyTorch decides.
    """

    name: str
    device: str
    threads: int | None = None


def check_devices(devices: str) -> None:
    """Refuse what `places` does not understand.

    Raises:
        ValueError: naming the fault.
    """
    names = _split(devices)
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or (match[1] == "auto" and match[2]):
            raise ValueError(f"{name!r} is no device; use auto, cpu, cpu:N for N engines, cuda or cuda:N")
        if match[1] == "cpu" and match[2] and int(match[2]) == 0:
            raise ValueError("cpu:N is N engines, at least one")
    kinds = [name.partition(":")[0] for name in names]
    if not names or len(names) != len(set(names)) or ({"auto", "cpu"} & set(kinds) and len(names) > 1):
        raise ValueError("several devices are cuda:N, each once; several engines of a CPU are cpu:N")
    if "cuda" in names and len(names) > 1:
        raise ValueError("cuda is every GPU already; name some by cuda:N")


def places(devices: str, threads: int | None, cores: int, gpus: int) -> list[Place]:
    """Return where engines are to run.

    Args:
        devices: as `check_devices` takes them: auto, cpu, cpu:N, cuda (every GPU), or some of cuda:N by commas.
        threads: of each engine; None: engines of a CPU share its cores, and alone, PyTorch decides.
        cores: of this machine.
        gpus: of this machine, for `cuda`; 0 leaves it to the engine to say what is wrong.
    """
    names = _split(devices)
    kind, _, number = names[0].partition(":")
    if kind == "cpu" and int(number or 1) > 1:
        each = threads or max(1, cores // int(number))
        return [Place(f"cpu:{index}", "cpu", each) for index in range(int(number))]
    if names == ["cuda"] and gpus > 1:
        return [Place(f"cuda:{index}", f"cuda:{index}", threads) for index in range(gpus)]
    return [Place(name, "cpu" if kind == "cpu" else name, threads) for name in names]


def count_gpus() -> int:
    """Return how many GPUs CUDA shows; 0 without its driver."""
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=False)  # noqa: S603
    return int(done.stdout) if done.returncode == 0 else 0


def _split(devices: str) -> list[str]:
    return [name for part in devices.split(",") if (name := part.strip())]
