"""The memory that weights take and that tensors of a GPU may take, and errors of memory that runs out."""

import re
import sys
import traceback

import torch

# Share of a GPU's memory that tensors may take. Torch keeps what they had, and CUDA's libraries, graphs and kernels,
# which take memory beside torch, would find none.
MEMORY_SHARE = 0.9

# Torch's host allocator and CUDA's libraries have no error of their own for it. cuFFT calls it an internal error.
_OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|out[ _]of[ _]memory|alloc(ation)?_failed|cufft_internal_error", re.IGNORECASE
)


def weight_bytes(parameters: int) -> dict[str, int]:
    """Return the bytes that a number of parameters take, calculated, in the dtypes that models are mostly served in."""
    return {name: parameters * size for name, size in (("float32", 4), ("bfloat16", 2))}


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out: in Python, in torch, or in one of CUDA's libraries."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None


def leave_room(device: torch.device, share: float = MEMORY_SHARE) -> None:
    """Limit this process's tensors to a share of a GPU's memory; on a CPU do nothing."""
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(share, _number(device))


def free_bytes(device: torch.device) -> int:
    """Return the bytes of a device that tensors may take; without a GPU a large number.

    Torch keeps freed memory for later tensors, and may be limited to a share of the device.
    """
    if device.type != "cuda":
        return sys.maxsize
    free, total = torch.cuda.mem_get_info(device)
    allowed = int(torch.cuda.get_per_process_memory_fraction(_number(device)) * total)
    return min(free + torch.cuda.memory_reserved(device), allowed) - torch.cuda.memory_allocated(device)


def _number(device: torch.device) -> int:
    """Return the number of a GPU, which these calls want in torch 2.11."""
    return torch.cuda.current_device() if device.index is None else device.index


def free_after(error: BaseException) -> None:
    """Give GPU memory back that no tensor has, nor any tensor of the frames that an error has ended: these are cleared.

    Not while a graph is captured: it may wait for the device, which spoils the capture.
    """
    ended: BaseException | None = error
    while ended is not None:
        traceback.clear_frames(ended.__traceback__)
        ended = ended.__context__
    torch.cuda.empty_cache()
