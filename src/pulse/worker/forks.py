"""Keeps a forked child of a handler from going on as if it were the worker.

A handler may call `os.fork()`. The child has copies of the worker's queues and of its sockets: if it returned
into the worker's code it would run the same jobs, and report them. ADR-0062
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """What must not go on in a forked child."""

    def stop_in_child(self) -> None: ...


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch_forks(watched: Forked) -> None:
    """Call its `stop_in_child` in every child that this process forks."""
    _watched.add(watched)


def exit_soon(loop: asyncio.AbstractEventLoop) -> None:
    """End a forked child once the handler that forked gives control back to the event loop."""
    with contextlib.suppress(RuntimeError):  # another thread forked: this loop does not run in the child
        loop.call_soon(os._exit, os.EX_SOFTWARE)


def _stop_in_child() -> None:
    for watched in list(_watched):
        watched.stop_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_in_child)
