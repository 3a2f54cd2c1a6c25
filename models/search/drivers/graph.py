"""The graph driver: a few steps become one CUDA graph, which is replayed until every row is done.

The host launches a replay before it has read the flag of the one before: the device never waits for it, and the one
replay too many does nothing, because a finished row changes nothing any more.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from models.graphs.capture import captured


class Replay:
    """Steps over tensors that stay where they are.

    Args:
        steps: what a replay does; it allocates no shape that depends on data and asks the device for nothing.
        going: bool [1], to which ``steps`` writes at last whether any row goes on.
    """

    def __init__(self, steps: Callable[[], None], going: Tensor) -> None:
        """Capture the steps; they run a few times before that.

        Raises:
            RuntimeError: if they cannot be captured.
        """
        self._going = going
        self._on_gpu = going.is_cuda
        self._replay = captured(steps, going.device)
        self._seen = torch.ones(1, dtype=torch.bool, pin_memory=self._on_gpu)

    def until_done(self, most: int) -> int:
        """Replay until no row goes on, and return how often; at most so many times, and one more."""
        self._replay()
        for replays in range(1, most + 1):
            copied = self._copy_flag()
            self._replay()
            if copied is not None:
                copied.synchronize()
            if not self._seen.item():
                return replays
        return most + 1

    def _copy_flag(self) -> "torch.cuda.Event | None":
        """Begin to copy the flag of the replay before to the host, ahead of the next replay."""
        self._seen.copy_(self._going, non_blocking=True)
        if not self._on_gpu:
            return None
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return copied
