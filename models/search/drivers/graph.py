"""The graph driver: a GPU repeats a few steps, which are one CUDA graph, until every row is done.

It loops by itself where it can. Elsewhere the host launches a replay before it has read the flag of the one before: the
device never waits for it, and the one replay too many does nothing, because a finished row changes nothing any more.
"""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from models.graphs.capture import captured, captured_graph
from models.graphs.device_loop import DeviceLoop, has_loops
from models.graphs.side_stream import SideStream

log = logging.getLogger("steno.models")

# A round of a loop costs a few microseconds besides its steps, and the last does some for nothing.
STEPS_A_ROUND = 4
# A clip of 10 s takes about 50 steps: four replays, of which the last is half idle.
STEPS_A_REPLAY = 16


class GraphDriver:
    """Steps over tensors that stay where they are, repeated.

    Args:
        steps: does so many steps, an even number; it allocates no shape that depends on data and asks the device for
            nothing.
        going: bool [1], to which ``steps`` writes at last whether any row goes on.
        side_stream: the side stream of the device in which it is driven.
        loops: whether a GPU may loop by itself, if it can.
    """

    def __init__(
        self, steps: Callable[[int], None], going: Tensor, side_stream: SideStream, *, loops: bool = True
    ) -> None:
        """Capture the steps; they run a few times before that.

        Raises:
            RuntimeError: if they cannot be captured.
        """
        self._going = going
        self._loop = _loop(lambda: steps(STEPS_A_ROUND), going, side_stream) if loops else None
        if self._loop is not None:
            return
        self._replay = captured(lambda: steps(STEPS_A_REPLAY), going.device, side_stream=side_stream)
        self._seen = torch.ones(1, dtype=torch.bool, pin_memory=going.is_cuda)

    def until_done(self, most: int) -> int:
        """Step until no row goes on, which needs ``most`` steps at most; return how many there were at most.

        What is on its way to be done is done on the current stream before whatever comes after it.
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
        """Begin to copy the flag of the replay before to the host, ahead of the next replay."""
        self._seen.copy_(self._going, non_blocking=True)
        if not self._going.is_cuda:
            return None
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return copied


def _loop(work: Callable[[], None], going: Tensor, side_stream: SideStream) -> DeviceLoop | None:
    """Return a loop of the device over some work; None where it cannot loop."""
    if not going.is_cuda or not has_loops(going.device):
        return None
    graph = captured_graph(work, going.device, side_stream=side_stream)
    try:
        return DeviceLoop(graph, going)
    except RuntimeError as error:
        log.warning("no loop on the device over these steps, the host will ask it whether to go on: %s", error)
        return None
