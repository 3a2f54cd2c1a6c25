"""Memory that glibc's malloc keeps, and that goes back to the system. Other C libraries are left alone.

Under overload, queues hold recordings of half a megabyte each. In a heap, the last one that is freed keeps the memory
of all, until the heap is trimmed. Blocks of their own (`M_MMAP_THRESHOLD`) would go back at once, but each request then
takes more processor time, in which the kernel maps and clears pages (docs/performance.md).
"""

import ctypes

_M_ARENA_MAX = -8  # from malloc.h
_ARENAS = 2


def use_few_heaps() -> None:
    """Have threads share heaps, so that fewer are half empty."""
    libc = ctypes.CDLL(None)  # the C library of this process
    if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def return_free_memory() -> None:
    """Return the free pages of all heaps to the system; other Python threads run meanwhile."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
