"""Memory and open files of this process: its size, the return of freed memory, the limit of files."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress

# glibc's mallopt, and its parameters.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Blocks of this size go back to the system when they are freed. By default glibc raises the bound
# to the largest block ever freed, and keeps free blocks that lie between used ones.
_LARGE_BLOCK = 512 * 1024
_KEPT_AT_THE_TOP = 16 * 1024 * 1024
# Few threads allocate at the same time: Python's own and gRPC's.
_ARENAS = 2


def give_back_large_blocks() -> None:
    """Have large blocks returned to the system. Does nothing where the allocator is another one."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_THE_TOP)
        mallopt(_M_ARENA_MAX, _ARENAS)


def raise_open_files() -> None:
    """Allow as many open files as the system lets this process have: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have a lower bound than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
