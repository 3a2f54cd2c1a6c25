"""Capturing work on tensors with fixed addresses as a CUDA graph.

On a CPU the work is simply called, so that everything except the capture is tested everywhere.
"""

from collections.abc import Callable
from functools import cache

import torch

from models.graphs.pool import Pool
from models.graphs.side_stream import SideStream

# Runs before a capture, in which libraries choose kernels and allocate workspaces: a graph cannot hold that.
_WARM_UPS = 3


def captured(
    work: Callable[[], None], device: torch.device, pool: Pool, side_stream: SideStream | None = None
) -> Callable[[], None]:
    """Return a function that does the work again: the replay of its graph or, without a GPU, the work itself.

    Args:
        work: must not allocate shapes that depend on data, nor wait for the device; it runs a few times before the
            capture.
        device: the device.
        pool: memory that it shares with graphs that never run at the same time.
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
    work: Callable[[], None], device: torch.device, pool: Pool, side_stream: SideStream | None = None
) -> "torch.cuda.CUDAGraph":
    """Return the graph of some work on a GPU, not instantiated; see ``captured``.

    Raises:
        RuntimeError: if it cannot be captured.
    """
    # Work that never runs at the same time is warmed up and captured on one stream: a workspace that a library
    # allocates during a capture would be in that graph's memory, and other graphs would overwrite it. Workspaces are
    # per stream, so a side stream and the work beside it have two.
    stream = _capture_stream(device) if side_stream is None or side_stream.stream is None else side_stream.stream
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            work()
    current.wait_stream(stream)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    try:
        # thread_local: other threads may use the device meanwhile without spoiling the capture.
        with torch.cuda.graph(graph, pool.handle, stream, capture_error_mode="thread_local"):
            work()
    except BaseException:
        torch.cuda.set_stream(current)  # torch leaves the stream only after a capture that succeeds
        pool.leave()
        raise
    pool.add(graph)
    return graph


@cache
def _capture_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
