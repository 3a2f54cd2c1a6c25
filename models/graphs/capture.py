"""Work on tensors that stay where they are becomes one CUDA graph.

On a CPU the work is simply called, so that all but the capture is tested everywhere.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from models.graphs.side_stream import SideStream

Pool = Any  # torch's type for it has no public name

# Before a capture: libraries choose their kernels and take their workspaces, which a graph cannot hold.
_WARM_UPS = 3


def captured(
    work: Callable[[], None], device: torch.device, pool: Pool | None = None, side_stream: SideStream | None = None
) -> Callable[[], None]:
    """Return what does the work again: the replay of its graph, or the work itself on what is no GPU.

    Args:
        work: it allocates no shape that depends on data, asks the device for nothing, and runs a few times before it
            is captured.
        device: where it runs.
        pool: memory that graphs share which never run at the same time; None gives this one its own.
        side_stream: the side stream of the device in which the graph will run; None if it will run in none.

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
    """Return the graph of some work on a GPU, which is not instantiated; see ``captured``.

    Raises:
        RuntimeError: if it cannot be captured.
    """
    # All warm-ups and captures of what never runs at the same time on one stream: a workspace that a library first took
    # during a capture would lie in that graph's memory, and be written to by whatever ran there later. Each stream has
    # its own, so that those of a side stream and of what runs beside it are two.
    stream = _capture_stream(device) if side_stream is None or side_stream.stream is None else side_stream.stream
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    # Other threads may use the device meanwhile: that must not spoil the capture.
    with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
        work()
    return graph


def shared_pool(device: torch.device) -> Pool | None:
    """Return memory for graphs of which never two run at the same time; None on what is no GPU and needs none."""
    if device.type != "cuda":
        return None
    return torch.cuda.graph_pool_handle()


@cache
def _capture_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
