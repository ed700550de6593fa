"""Takes the zombies of processes that others have left, where no init does."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection

_SECONDS = 5.0
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT


async def reap_orphans(own: Callable[[], Collection[int]]) -> None:
    """Do so for as long as this runs. `own` are children whose ends another part of this process awaits.

    For the first process of a container, whose children all orphans become: what handlers have started and
    left. Only if this process has no further children of its own.
    """
    while True:
        await asyncio.sleep(_SECONDS)
        _reap(own)


def _reap(own: Callable[[], Collection[int]]) -> None:
    with contextlib.suppress(ChildProcessError):  # there are no children at all
        # One that is awaited elsewhere hides the others until it is gone from there: the next time.
        while (zombie := os.waitid(os.P_ALL, 0, _PEEK)) is not None and zombie.si_pid not in own():
            os.waitpid(zombie.si_pid, os.WNOHANG)
