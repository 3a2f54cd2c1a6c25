"""The graph driver: a GPU repeats a CUDA graph of a few steps until all rows are done.

The GPU loops by itself if it can. If not, the host launches a replay before it reads the flag of the previous one, so
that the device never waits; the last replay is superfluous and changes nothing, because finished rows do not change.
But the thread that launches then waits until each search is done, and so begins with the next batch later: the state
of the path `loop` says so.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath, PathState
from models.graphs.capture import captured, captured_graph
from models.graphs.device_loop import DeviceLoop, has_loops
from models.graphs.side_stream import SideStream

# A round of the loop costs a few microseconds besides its steps, and some steps of the last round are superfluous.
STEPS_A_ROUND = 4
# A clip of 10 s takes about 50 steps, so four replays.
STEPS_A_REPLAY = 16


class GraphDriver:
    """Repeats steps over tensors with fixed addresses.

    Args:
        steps: called with an even number, does that many steps. It must not allocate shapes that depend on data, nor
            wait for the device.
        going: bool [1]; ``steps`` must end by writing to it whether any row is active.
        side_stream: the side stream that steps run in.
        loops: whether a GPU may loop by itself, if it can.

    Attributes:
        loops: whether it does.
    """

    def __init__(
        self, steps: Callable[[int], None], going: Tensor, side_stream: SideStream, *, loops: bool = True
    ) -> None:
        """Capture the steps, after a few runs to warm up.

        Raises:
            RuntimeError: if they cannot be captured.
        """
        self._going = going
        self._loop = _loop(lambda: steps(STEPS_A_ROUND), going, side_stream) if loops else None
        self.loops = self._loop is not None
        if self.loops:
            return
        self._replay = captured(lambda: steps(STEPS_A_REPLAY), going.device, side_stream.pool, side_stream)
        self._seen = torch.ones(1, dtype=torch.bool, pin_memory=going.is_cuda)

    def until_done(self, most: int) -> int:
        """Step until no row is active, and return an upper bound of the number of steps that changed a row.

        ``most`` steps must be enough for any search. Steps are queued on the current stream, before any later work.
        """
        if self._loop is not None:
            self._loop.run(-(-most // STEPS_A_ROUND))
            return most
        self._replay()
        for replays in range(1, most // STEPS_A_REPLAY + 1):
            copied = self._copy_flag()
            self._replay()
            if copied is not None:
                copied.synchronize()
            if not self._seen.item():
                return replays * STEPS_A_REPLAY
        return most

    def _copy_flag(self) -> "torch.cuda.Event | None":
        """Begin to copy the flag of the previous replay to the host, before the next replay is launched."""
        self._seen.copy_(self._going, non_blocking=True)
        if not self._going.is_cuda:
            return None
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return copied


def _loop(work: Callable[[], None], going: Tensor, side_stream: SideStream) -> DeviceLoop | None:
    """Return a loop of the device over some work; None if the device cannot loop."""
    if not going.is_cuda or not FAST_PATHS.allows(FastPath.LOOP) or not has_loops(going.device):
        return None
    graph = captured_graph(work, going.device, side_stream.pool, side_stream)
    try:
        return DeviceLoop(graph, going)
    except (RuntimeError, TypeError, AttributeError) as error:  # bindings of other versions have other signatures
        FAST_PATHS.bar(FastPath.LOOP, PathState.FAILED, f"the host asks the device whether to go on: {error}")
        return None
