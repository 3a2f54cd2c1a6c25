"""The engines of a service: one for each device, or several that share a machine's processors."""

import re
import subprocess
import sys
from dataclasses import dataclass

_NAME = re.compile(r"(auto|cpu|cuda)(?::(\d+))?")

# In a child process, because a CUDA driver changes the process that initialises it, and the front starts children.
# It counts the GPUs of CUDA_VISIBLE_DEVICES, as PyTorch does.
_COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(count.value if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0)
"""


@dataclass(frozen=True, slots=True)
class EngineDevice:
    """The device of one engine.

    Attributes:
        name: its unique name in logs and metrics.
        device: PyTorch's name of the device.
        threads: CPU threads for a batch; None: PyTorch decides.
    """

    name: str
    device: str
    threads: int | None = None


def check_devices(devices: str) -> None:
    """Check a setting for `engine_devices`.

    Raises:
        ValueError: if it is not valid; the message says why.
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


def engine_devices(devices: str, threads: int | None, cores: int, gpus: int) -> list[EngineDevice]:
    """Return the devices on which engines run.

    Args:
        devices: auto, cpu, cpu:N, cuda (every GPU), or some of cuda:N separated by commas.
        threads: threads of each engine; None: several engines of a CPU share its cores; for one, PyTorch decides.
        cores: cores of this machine.
        gpus: GPUs of this machine, for `cuda`; with 0 the engine reports what is wrong.
    """
    names = _split(devices)
    kind, _, number = names[0].partition(":")
    if kind == "cpu" and int(number or 1) > 1:
        each = threads or max(1, cores // int(number))
        return [EngineDevice(f"cpu:{index}", "cpu", each) for index in range(int(number))]
    if names == ["cuda"] and gpus > 1:
        return [EngineDevice(f"cuda:{index}", f"cuda:{index}", threads) for index in range(gpus)]
    return [EngineDevice(name, "cpu" if kind == "cpu" else name, threads) for name in names]


def count_gpus() -> int:
    """Return the number of GPUs that CUDA shows; 0 without its driver."""
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=False)  # noqa: S603
    return int(done.stdout) if done.returncode == 0 else 0


def _split(devices: str) -> list[str]:
    return [name for part in devices.split(",") if (name := part.strip())]
