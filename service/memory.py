"""Gives the system back the free memory that glibc's malloc keeps. With another C library it does nothing.

Under overload, queues hold recordings of half a megabyte each. In a heap, free memory below a recording that is still
in use stays there until the heap is trimmed. If each had a mapping of its own (`M_MMAP_THRESHOLD`), its memory would go
back at once, but the kernel would map and clear pages for each request (docs/performance.md at 4f03a9e).
"""

import ctypes

_M_ARENA_MAX = -8  # from malloc.h
_ARENAS = 2


def use_few_heaps() -> None:
    """Let all threads share two heaps, so that fewer are half empty."""
    libc = ctypes.CDLL(None)  # the C library of this process
    if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def return_free_memory() -> None:
    """Return the free pages of all heaps to the system; other Python threads run meanwhile."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
