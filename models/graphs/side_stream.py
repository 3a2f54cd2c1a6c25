"""A side stream of a device, for work that runs beside the next batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from models.graphs.pool import Pool

# Whether a side stream is a CUDA stream of its own, or the current stream. The current one is as fast where the next
# batch's kernels leave no room for others (docs/gpu-backlog.md, row 2j).
HAS_STREAM = True


class SideStream:
    """Runs its work in order; other work of the device does not wait for it until ``join``.

    On a CPU, which has no queue, entering and joining do nothing.

    Attributes:
        stream: the CUDA stream; None on a CPU, or without ``HAS_STREAM``.
        pool: memory that its graphs share, because they never run at the same time.
    """

    def __init__(self, device: torch.device) -> None:
        """Open a side stream of ``device``."""
        # With a higher priority: its kernels are small, and each waits for the one before.
        self.stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" and HAS_STREAM else None  # type: ignore[no-untyped-call]
        self.pool = Pool()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Queue work of the block on the side stream, after the work queued so far on the current stream."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """Make work queued from now on wait for the side stream."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
