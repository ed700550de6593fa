"""What an undo finds and leaves. docs/figures.md#undo"""

from __future__ import annotations

from typing import NamedTuple

from pulse_server.domain.jobs import Job
from pulse_server.domain.status import JobStatus


class ActedOn(NamedTuple):
    """A job that an action changed last."""

    job_id: str
    can_be_undone: bool
    was_running: bool
    """The action canceled it while it ran."""


class Restored(NamedTuple):
    """A job after an undo, and its status before. An undone change of priority keeps the status."""

    job: Job
    before: JobStatus
