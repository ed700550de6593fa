"""The application: `pulse worker faults.handlers.app:p`. It records what ran in a journal."""

from __future__ import annotations

import json
import os
import time

import pulse
from faults.handlers import blowups, exits, forks, hangs, plain
from faults.handlers.kinds import router
from faults.stepped_work import run_of
from pulse import tuning

__all__ = ["blowups", "exits", "forks", "hangs", "p", "plain"]

# A run is shorter than a day of production: hangs have to be given up sooner.
tuning.TIME_LIMIT_GRACE_SECONDS = 1.0
tuning.FROZEN_CPU_SECONDS = 4.0
tuning.FROZEN_LOOK_SECONDS = 0.2

p = pulse.Pulse()
p.include(router)
_journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@p.middleware
async def record(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    """Write a line at the start and at the end of each run."""
    pid = os.getpid()
    _write("start", call.context)
    try:
        await call_next()
    except BaseException as error:
        if os.getpid() == pid:
            _write(f"raised {type(error).__name__}", call.context)
        raise
    if os.getpid() == pid:  # the handler may have forked
        _write("end", call.context)


def _write(event: str, context: pulse.Context) -> None:
    # One write to a file opened for appending: a line is there in whole or not at all.
    line = {
        "event": event,
        "at": time.time(),
        "job_id": context.job_id,
        "attempt": context.attempt,
        "run": run_of(context),
        "topic": context.topic,
        "pid": os.getpid(),
    }
    os.write(_journal, json.dumps(line).encode() + b"\n")
