"""Raise an error in another thread, but not inside of the locks that all threads share.

An error that comes up between taking a lock and the `try` that releases it leaves the lock taken. In
`logging`, or in an import, it would block every thread of the process for ever.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

_FILES_WITH_SHARED_LOCKS = frozenset({logging.__file__, "<frozen importlib._bootstrap>"})


def raise_in_thread(thread_id: int, error: type[BaseException], is_over: Callable[[], bool]) -> bool:
    """Raise the error in the thread, at its next bytecode, unless it is over. Not while it waits in C code.

    Returns False if the thread is inside of shared locks: try again a moment later.
    """
    import ctypes  # not before it is needed: few workers do

    # Gives the interpreter up and takes it anew. No other thread asks for it within the next milliseconds, so
    # the thread stays where it is seen.
    time.sleep(0)
    if is_over():
        return True
    if _is_inside_shared_locks(thread_id):
        return False
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
    return True


def take_back(thread_id: int) -> None:
    """Take back an error that has not come up yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), None)


def _is_inside_shared_locks(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        if frame.f_code.co_filename in _FILES_WITH_SHARED_LOCKS:
            return True
        frame = frame.f_back
    return False
