"""Capturing work on tensors with fixed addresses as a CUDA graph.

On a CPU the work is simply called, so that everything except the capture is tested everywhere.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from models.graphs.side_stream import SideStream

Pool = Any  # torch's type for it has no public name

# Runs before a capture, in which libraries choose kernels and allocate workspaces: a graph cannot hold that.
_WARM_UPS = 3


def captured(
    work: Callable[[], None], device: torch.device, pool: Pool | None = None, side_stream: SideStream | None = None
) -> Callable[[], None]:
    """Return a function that does the work again: the replay of its graph or, without a GPU, the work itself.

    Args:
        work: must not allocate shapes that depend on data, nor wait for the device; it runs a few times before the
            capture.
        device: the device.
        pool: memory shared by graphs that never run at the same time; None gives this one its own.
        side_stream: the side stream that the graph will run in; None if it will not.

    Raises:
        RuntimeError: if it cannot be captured.
    """
    if device.type != "cuda":
        return work
    graph = captured_graph(work, device, pool, side_stream)
    graph.instantiate()
    replay: Callable[[], None] = graph.replay
    return replay


def captured_graph(
    work: Callable[[], None], device: torch.device, pool: Pool | None = None, side_stream: SideStream | None = None
) -> "torch.cuda.CUDAGraph":
    """Return the graph of some work on a GPU, not instantiated; see ``captured``.

    Raises:
        RuntimeError: if it cannot be captured.
    """
    # Work that never runs at the same time is warmed up and captured on one stream: a workspace that a library
    # allocates during a capture would be in that graph's memory, and other graphs would overwrite it. Workspaces are
    # per stream, so a side stream and the work beside it have two.
    stream = _capture_stream(device) if side_stream is None or side_stream.stream is None else side_stream.stream
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    # thread_local: other threads may use the device meanwhile without spoiling the capture.
    with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
        work()
    return graph


def shared_pool(device: torch.device) -> Pool | None:
    """Return a memory pool for graphs that never run at the same time; None without a GPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.graph_pool_handle()


@cache
def _capture_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
