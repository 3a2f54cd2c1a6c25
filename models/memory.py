"""Memory that runs out, which is no fault of what was computed or read, and the share of a GPU's that tensors get."""

import re
import traceback

import torch

# Share of a GPU's memory that tensors may take. Torch keeps what they had, and CUDA's libraries, graphs and kernels,
# which take memory beside torch, would find none.
MEMORY_SHARE = 0.9

# Torch's host allocator and CUDA's libraries have no error of their own for it. cuFFT calls it an internal error.
_OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|out[ _]of[ _]memory|alloc(ation)?_failed|cufft_internal_error", re.IGNORECASE
)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out: in Python, in torch, or in one of CUDA's libraries."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None


def leave_room(device: torch.device, share: float = MEMORY_SHARE) -> None:
    """Limit this process's tensors to a share of a GPU's memory; on a CPU do nothing."""
    if device.type == "cuda":
        # torch 2.11 wants the device's number.
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(share, index)


def free_after(error: BaseException) -> None:
    """Give GPU memory back that no tensor has, nor any tensor of the frames that an error has ended: these are cleared.

    Not while a graph is captured: it may wait for the device, which spoils the capture.
    """
    ended: BaseException | None = error
    while ended is not None:
        traceback.clear_frames(ended.__traceback__)
        ended = ended.__context__
    torch.cuda.empty_cache()
