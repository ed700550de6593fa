"""Records when a process gets no CPU time: `python -m faults.stalls NAME DIRECTORY MODULE [ARGUMENT]`.

On a busy machine a process may wait for a core as long as a lease lasts. Then it counts as frozen, and the
jobs that it loses are no bug.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
import time
from pathlib import Path
from threading import Thread

from faults.history import History

_TICK_SECONDS = 0.05
# A thread that wakes up this late shows that the process was stalled.
_STALLED_SECONDS = 0.25


def note_stalls(history: History) -> None:
    """Record each stall of this process from now on, whatever the reason."""
    Thread(target=_note, args=[history], name="stalls", daemon=True).start()


def _note(history: History) -> None:
    before = time.monotonic()
    while True:
        time.sleep(_TICK_SECONDS)
        now = time.monotonic()
        if now - before > _STALLED_SECONDS:
            history.write("stalled", seconds=now - before)
        before = now


async def note_late_turns(history: History) -> None:
    """Record when the event loop of this process is late: all links of a run pass through it."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(_TICK_SECONDS)
        if (late := time.monotonic() - before) > _STALLED_SECONDS:
            history.write("stalled", seconds=late)


def main() -> None:
    """Record stalls, and run the module."""
    name, directory, module, *arguments = sys.argv[1:]
    note_stalls(History(Path(directory), name))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
