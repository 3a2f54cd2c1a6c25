"""Settings of glibc's malloc that return freed memory to the system."""

import ctypes

# From malloc.h. A threshold that is set explicitly is also not raised by glibc when something large is freed.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 17
_ARENAS = 2


def keep_heap_small() -> None:
    """Have glibc allocate large blocks by mmap, so that they are returned when freed, and use few heaps.

    Under overload, queues hold recordings of half a megabyte each; in a heap, the last one that is freed would keep the
    memory of all. Other C libraries are left alone.
    """
    libc = ctypes.CDLL(None)  # the C library of this process
    if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
