"""The engines of a service: one for each device, or several that share a machine's processors."""

import math
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from models.bundled import CHECKPOINT, NAME

# Several engines pay where the model is small. On two processors, two engines transcribe 1.5 times as much as one with
# a model of 9 M parameters, 1.14 times with one of 13 M, and as much with one of 110 M (docs/performance.md at
# 4f03a9e). Each has its own copy of the model.
_SMALL_BYTES = 32 << 20
_MOST_ENGINES = 4
# With the bundled model the first takes 383 MB with the front, and each further one 267 MB; there must be room for
# batches and uploads too.
_FRONT_BYTES, _ENGINE_BYTES = 500 << 20, 400 << 20

# One on each processor is the most that is known to pay. Each takes memory and loads at the same time as the others.
_MOST_ENGINES_OF_A_PROCESSOR = 4

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
    """The device of one engine."""

    name: str  # its unique name in logs and metrics
    device: str  # PyTorch's name of the device
    threads: int | None = None  # CPU threads for a batch; None: PyTorch decides
    shared_threads: int = 0  # CPU threads that the engines at work share, at least ``threads`` each; 0: they share none


def check_devices(devices: str, processors: int) -> None:
    """Check a setting for `engine_devices`.

    Raises:
        ValueError: if it is not valid; the message says why.
    """
    names, most = _split(devices), _MOST_ENGINES_OF_A_PROCESSOR * processors
    if not names:
        raise ValueError("no device is named; use auto, cpu, cpu:N for N engines, cuda or cuda:N")
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or (match[1] == "auto" and match[2]):
            raise ValueError(f"{name!r} is no device; use auto, cpu, cpu:N for N engines, cuda or cuda:N")
        if match[1] == "cpu" and match[2] and int(match[2]) == 0:
            raise ValueError("cpu:N is N engines, at least one")
        if match[1] == "cpu" and match[2] and int(match[2]) > most:
            raise ValueError(
                f"{name} is too many engines; at most cpu:{most}, {_MOST_ENGINES_OF_A_PROCESSOR} for each processor"
            )
    kinds = [name.partition(":")[0] for name in names]
    if len(names) != len(set(names)) or ({"auto", "cpu"} & set(kinds) and len(names) > 1):
        raise ValueError("several devices are cuda:N, each once; several engines of a CPU are cpu:N")
    if "cuda" in names and len(names) > 1:
        raise ValueError("cuda is every GPU already; name some by cuda:N")


def engine_devices(
    devices: str,
    threads: int | None,
    processors: int,
    gpus: int,
    checkpoints: Iterable[str] = (),
    memory_bytes: float = math.inf,
) -> list[EngineDevice]:
    """Return the devices on which engines run.

    On a CPU, `auto` is one engine, or if all checkpoints are small and no `threads` are set, one for each processor, at
    most four and as many as the memory has room for. Without ``threads``, several engines of a CPU share the
    processors, and for one, PyTorch decides. With 0 ``gpus`` for `cuda` the engine reports what is wrong.
    """
    names = _split(devices)
    if names == ["auto"] and not gpus and threads is None and _are_small(checkpoints):
        several = int(min(processors, _MOST_ENGINES, (memory_bytes - _FRONT_BYTES) / _ENGINE_BYTES))
        names = [f"cpu:{several}"] if several > 1 else names
    kind, _, number = names[0].partition(":")
    if kind == "cpu" and int(number or 1) > 1:
        each, shared = (threads, 0) if threads else (max(1, processors // int(number)), processors)
        return [EngineDevice(f"cpu:{index}", "cpu", each, shared) for index in range(int(number))]
    if names == ["cuda"] and gpus > 1:
        return [EngineDevice(f"cuda:{index}", f"cuda:{index}", threads) for index in range(gpus)]
    return [EngineDevice(name, "cpu" if kind == "cpu" else name, threads) for name in names]


def count_gpus() -> int:
    """Return the number of GPUs that CUDA shows; 0 without its driver."""
    done = subprocess.run([sys.executable, "-P", "-c", _COUNT], capture_output=True, text=True, check=False)  # noqa: S603
    return int(done.stdout) if done.returncode == 0 else 0


def _are_small(checkpoints: Iterable[str]) -> bool:
    """Return whether all checkpoints are small; one that is not on this machine counts as large."""
    paths = [CHECKPOINT if one == NAME else Path(one) for one in checkpoints]
    return bool(paths) and all(path.is_file() and path.stat().st_size <= _SMALL_BYTES for path in paths)


def _split(devices: str) -> list[str]:
    return [name for part in devices.split(",") if (name := part.strip())]
