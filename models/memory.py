"""Whether memory ran out, which is no fault of what was computed or read."""

import torch


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out: on the GPU, in Python, or in torch's host allocator, which has no own error."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
