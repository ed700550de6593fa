"""Keeps a forked child of a handler from going on as if it were the worker.

A handler may call `os.fork()`. The child has copies of the worker's queues and of its sockets: if it returned
into the worker's code it would run the same jobs, and report them. ADR-0062
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
import weakref
from collections import deque
from typing import NoReturn, Protocol


class Forked(Protocol):
    """What must not go on in a forked child."""

    def stop_in_child(self) -> None: ...


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_never_run: list[object] = []
"""In a forked child: kept, because tasks complain when they are dropped."""


def watch_forks(watched: Forked) -> None:
    """Call its `stop_in_child` in every child that this process forks."""
    _watched.add(watched)


def exit_soon(loop: asyncio.AbstractEventLoop) -> None:
    """End a forked child once the handler that forked gives control back to the event loop.

    Nothing else that is due may run in it: the child has the worker's sockets, and what it wrote there would
    break the worker's connection. Locks of gRPC that other threads held at the fork are held for ever.
    """
    due = getattr(loop, "_ready", None)  # of asyncio's own loops
    if isinstance(due, deque):
        _never_run.extend(due)
        due.clear()
    with contextlib.suppress(RuntimeError):  # another thread forked: this loop does not run in the child
        loop.call_soon(os._exit, os.EX_SOFTWARE)


def end_child(error: BaseException | None) -> NoReturn:
    """End a forked child whose handler raised this, as Python would; or one in which it returned."""
    code, text = os.EX_SOFTWARE, ""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        text = f"{error.code}\n" if isinstance(error.code, str) else ""
    elif error is not None:
        code, text = 1, "".join(traceback.format_exception(error))
    # Not by sys.stderr: if another thread held its lock at the fork, it stays locked in the child.
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))
    os._exit(code & 0xFF)


def _stop_in_child() -> None:
    for watched in list(_watched):
        watched.stop_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_in_child)
