"""A thread that gets to its job too late: the claim may be lost by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob


class Late(Exception):
    """The thread started when the claim was lost, or may have been."""


def in_time(job: HeldJob, call: Callable[..., Any], *args: Any) -> Any:
    """Call the function in the thread of a job. Raises Late if the claim may be lost."""
    # A thread may start long after the event loop checked: on a busy machine, or after a freeze.
    if job.stop_reason or lease_clock() >= job.start_by:
        raise Late
    return call(*args)
