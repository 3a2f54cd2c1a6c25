"""Memory that was needed for a while goes back to the system."""

import ctypes

# Of malloc.h. Setting a threshold by hand also keeps glibc from raising it whenever something large is freed.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 17
_ARENAS = 2


def keep_heap_small() -> None:
    """Have glibc map what is large apart, so that it is given back when freed, and share few heaps among threads.

    An overload fills queues with recordings of half a megabyte; in a heap, the one that is freed last would hold all of
    them. Other C libraries do as they do.
    """
    libc = ctypes.CDLL(None)  # what this process is linked with
    if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
