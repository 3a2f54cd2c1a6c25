"""How the C library hands memory to tensors."""

import ctypes

# The numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Have this process keep the memory of large tensors that were freed, for the next ones.

    glibc maps every large block anew and unmaps it when it is freed, so each tensor of a batch begins with a page
    fault for every 4 KiB. A process that computes batch after batch spends a quarter of its time on them. The price is
    that its memory does not shrink again below its peak.

    Returns:
        Whether it will; other C libraries than glibc stay as they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
