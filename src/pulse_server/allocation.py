"""How this process gives memory back: what large requests took must not stay with it. ADR-0038"""

from __future__ import annotations

import ctypes
from contextlib import suppress

# glibc's mallopt, and what it is asked for.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Blocks of this size go back to the system when they are freed. By itself glibc raises the bound to the
# largest block that was ever freed, and keeps what lies between others.
_LARGE_BLOCK = 512 * 1024
_KEPT_AT_THE_TOP = 16 * 1024 * 1024
# Threads that allocate at the same time are few: Python's own, and those of gRPC.
_ARENAS = 2


def give_back_large_blocks() -> None:
    """Have large blocks returned to the system. Does nothing where the allocator is another one."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_THE_TOP)
        mallopt(_M_ARENA_MAX, _ARENAS)
