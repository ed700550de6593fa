"""Ends a process in which C code keeps the interpreter: a regular expression, or a power of huge numbers.

No Python code runs meanwhile: no heartbeat, no time limit, no handler of a signal. So it is the kernel that
ends the process, by a timer of its CPU time that a thread sets back. A process that is stopped, or that
waits, uses none.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
from collections.abc import Iterator

from pulse import tuning


@contextlib.contextmanager
def ended_if_frozen() -> Iterator[None]:
    """End the process with SIGPROF, and the stacks of its threads, if no Python code runs in it for long."""
    if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL:
        yield
        return
    with contextlib.suppress(Exception):  # a standard error that is no file: then without the stacks
        faulthandler.register(signal.SIGPROF, chain=True)
    is_over = threading.Event()
    # On many cores, code that does not keep the interpreter may use a lot of CPU between two looks.
    seconds = max(tuning.FROZEN_CPU_SECONDS, 5 * tuning.FROZEN_LOOK_SECONDS * (os.cpu_count() or 1))
    _set_back(seconds)
    threading.Thread(target=_watch, args=(seconds, is_over), name="pulse-frozen", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _watch(seconds: float, is_over: threading.Event) -> None:
    while not is_over.wait(tuning.FROZEN_LOOK_SECONDS):
        _, interval = signal.getitimer(signal.ITIMER_PROF)
        if interval:
            return  # a profiler uses the timer
        _set_back(seconds)
    _set_back(0)


def _set_back(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
