"""Copying a result to the host while the device goes on."""

import torch
from torch import Tensor


class HostCopy:
    """A tensor on the host, copied if it is on a GPU; only a thread that reads it waits for the device."""

    def __init__(self, tensor: Tensor) -> None:
        """Begin to copy; neither the host nor the device waits."""
        self._copied: torch.cuda.Event | None = None
        self._copy = tensor
        if tensor.is_cuda:
            self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copy.copy_(tensor, non_blocking=True)
            # A blocking event: a thread that waits for it sleeps.
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> None:
        """Wait for the copy; raise RuntimeError if the device failed."""
        if self._copied is not None:
            self._copied.synchronize()

    def tensor(self) -> Tensor:
        """Wait, and return the copy."""
        self.wait()
        return self._copy
