"""A side stream of a device: work that goes on beside what the device is given next."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Whether a side stream is a CUDA stream of its own. If not, its work goes between all else: that is as fast where its
# kernels find no room beside those of the next batch (docs/gpu-backlog.md, row 2j).
HAS_STREAM = True


class SideStream:
    """What it is given is done in order, and nothing else of the device waits for it before it is joined.

    On a CPU, which does what it is told at once, entering and joining do nothing.

    Attributes:
        stream: its stream; None on a CPU, and where side streams have none.
    """

    def __init__(self, device: torch.device) -> None:
        """Open a side stream of ``device``."""
        # Of two kernels that wait for room the side stream's goes first: it is small, and what follows it waits for it.
        self.stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" and HAS_STREAM else None  # type: ignore[no-untyped-call]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give the side stream what is given to the device inside; it begins when what came before is done."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """Let what the device is given next wait until the side stream is done."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
