"""The processes that train together, one for each device, started by `torchrun`; or a single process.

All processes have the same weights. The seed, the epoch and the step decide, without communication, which parts of
a step each computes. PyTorch's DistributedDataParallel averages gradients.
"""

import inspect
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.errors import RecipeError, TrainingError

# The others wait while the first process evaluates, maybe for hours. A process that dies is noticed sooner.
_PATIENCE = timedelta(hours=12)
# The option's name from torch 2.13 on, and before.
_BUFFERS_OPTION = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)


class Ranks:
    """A process of a run, and its communication with the others.

    Attributes:
        rank: its number, from 0; the first process writes and reports.
        count: number of processes.
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank = rank
        self.count = count

    @property
    def is_first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def share(self, parts: int) -> range:
        """Return this process's parts of a step.

        Raises:
            RecipeError: if they cannot be divided evenly.
        """
        if parts % self.count:
            raise RecipeError(
                f"batches.parts is {parts}; it must be a multiple of the {self.count} processes", "batches.parts"
            )
        own = parts // self.count
        return range(self.rank * own, (self.rank + 1) * own)

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return sums over all processes; each must call this, with the same number of values."""
        if self.count == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        if dist.get_backend() == "nccl":
            total = total.cuda()
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def any(self, *, here: bool) -> bool:
        """Return whether ``here`` is true in any process; each must call this."""
        return self.sums([float(here)])[0] > 0

    @contextmanager
    def one_after_the_first(self) -> Iterator[None]:
        """Run the block in the first process before the others, so that they find its results on the disk."""
        if self.count > 1 and not self.is_first:
            dist.barrier()
        yield
        if self.count > 1 and self.is_first:
            dist.barrier()

    def together(self, module: nn.Module) -> nn.Module:
        """Return a module, which computes the loss of a part, whose gradients are the mean over all processes."""
        if self.count == 1:
            return module
        # Harmless: strides of a depthwise convolution's gradient differ only in dimensions of size one.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        buffers: dict[str, Any] = {_BUFFERS_OPTION: False}
        return DistributedDataParallel(module, **buffers)

    def syncing(self, module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Return a context for a forward and a backward pass; only the last of a step averages gradients."""
        if isinstance(module, DistributedDataParallel) and not last:
            context: AbstractContextManager[None] = module.no_sync()
            return context
        return nullcontext()


@contextmanager
def process_group(device: torch.device) -> Iterator[Ranks]:
    """Join the processes that `torchrun` started, over NCCL on GPUs, over Gloo on CPUs; without it, stay alone.

    A GPU becomes the current device.

    Raises:
        TrainingError: if another process is gone while this one waits for it.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Ranks()
        return
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # else `sums` and kernels of all processes would use the first GPU
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
            raise TrainingError("another process of this run is gone; --resume goes on from the last state") from error
        raise
    finally:
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """Return the GPU of this process, by `torchrun`'s local rank; another device as it is."""
    if device.type != "cuda" or "LOCAL_RANK" not in os.environ:
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
