"""Memory that CUDA graphs share."""

from contextlib import suppress
from typing import Any
from weakref import WeakSet

import torch


class Pool:
    """Memory for the intermediate values of graphs that never run at the same time.

    torch takes no graph into memory whose graphs are all gone while a tensor is left there, nor into that of a failed
    capture. The next graphs get other memory then.
    """

    def __init__(self) -> None:
        """Begin without memory."""
        self._handle: Any = None  # torch's type for it has no public name
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()

    @property
    def handle(self) -> Any:  # noqa: ANN401
        """The handle of the memory for the next capture."""
        if not self._graphs:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def add(self, graph: "torch.cuda.CUDAGraph") -> None:
        """Note a graph that was captured there."""
        self._graphs.add(graph)

    def leave(self) -> None:
        """Leave the memory to the graphs that are there, after a capture that failed on the current GPU."""
        # Where CUDA does not end the capture, torch goes on, and would never again give cached memory back.
        end = torch._C._cuda_endAllocateToPool  # noqa: SLF001  # it has no public name
        with suppress(RuntimeError):  # torch has ended it
            end(torch.cuda.current_device(), self._handle)
        self._graphs.clear()
