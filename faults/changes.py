"""The rows of the audit. Times are whole microseconds by the database's clock.

Tuples, and not dataclasses: a run leaves hundreds of thousands of them, and these are made much faster.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class JobState(NamedTuple):
    """What the rules look at in a job's row."""

    status: str
    attempts: int
    run: int  # of the last claim
    max_attempts: int
    locked_by: str | None
    lease_until: int | None
    ready: bool
    delivered: bool
    finished_by: str | None
    snoozes: int = 0
    crashes: int = 0
    start_by: int | None = None
    progress: str | None = None  # its cursor, which names its writer
    priority: int = 0
    held: bool = False  # it waits for jobs of its workflow


class JobChange(NamedTuple):
    """One change of one job. For one job seq is in the order of the commits; across jobs it is not."""

    seq: int
    txid: int
    at: int
    statement_at: int
    job_id: str
    topic: str
    key: str | None  # as in the insert
    schedule_id: str | None  # as in the insert
    outcome: str | None  # of the attempt that it ended, if that was no success
    old: JobState | None  # None: there was no row
    new: JobState | None  # None: there is none any more
    unique_key: str | None = None  # as in the insert, with its scope before it
    submitted_at: int | None = None  # as in the insert
    committed: int = 0  # when it could be seen


class SwitchChange(NamedTuple):
    """One pause or resume, of a topic or of everything (topic "")."""

    seq: int
    txid: int
    at: int
    statement_at: int
    topic: str
    paused: bool


class LateWait(NamedTuple):
    """A wait for a signal that ended because it did not come in time."""

    seq: int
    txid: int
    at: int
    statement_at: int
    job_id: str
    attempt: int


class OutcomeChange(NamedTuple):
    """A settler counted the end of a job, or that it was brought back. Its seq is one of JobChange."""

    seq: int
    at: int
    statement_at: int
    job_id: str
    outcome: str | None


class WorkflowChange(NamedTuple):
    """A workflow was canceled as a whole, or brought back. Its seq is one of JobChange."""

    seq: int
    txid: int
    at: int
    statement_at: int
    workflow_id: str
    is_canceled: bool


class ScheduleChange(NamedTuple):
    """One change of one schedule. Its timetable is the one after the change, or the last one."""

    seq: int
    txid: int
    at: int
    statement_at: int
    schedule_id: str
    old_cursor: int | None  # None: it was made
    old_paused: bool | None
    cursor: int | None  # None: it is gone
    paused: bool | None
    last_run_at: int | None
    is_edit: bool
    kind: str
    run_at: int | None
    interval_ms: int | None
    cron_expr: str | None
    time_zone: str
    catch_up: str
    overlap: str = "allow"
    queued_for: int | None = None  # before the change


class LimitEvent(NamedTuple):
    """A run that began or ended, a job of a lane that waits, or a changed limit: see audit_limits.sql."""

    at: int  # when it was committed
    seq: int
    statement_at: int
    what: str
    name: str  # the topic, or the pool
    lane: str | None
    job_id: str | None
    moment: int | None
    facts: dict[str, Any] | None


# What happened, named after the statements that do it. verb_of distinguishes them.
INSERT = "insert"
HAND_OVER = "hand over"
CLAIM = "claim"
BEAT = "beat"
COMPLETE = "complete"
FAIL = "fail"
SNOOZE = "snooze"
RELEASE = "release"
REAP = "reap"
CANCEL = "cancel"
EXPIRE = "cancel unstarted"
REDRIVE = "redrive"
UNDO = "undo"
PROMOTE = "promote"
TOUCH = "touch"  # no rule looks at it: another priority, another time
DELETE = "delete"
ILLEGAL = "illegal"

CLAIMS = frozenset({CLAIM, HAND_OVER})

_BY_ARROW = {
    ("PENDING", "RUNNING"): CLAIM,
    ("RETRYING", "RUNNING"): CLAIM,
    ("RUNNING", "COMPLETED"): COMPLETE,
    ("PENDING", "CANCELED"): CANCEL,
    ("RETRYING", "CANCELED"): CANCEL,
    ("RUNNING", "CANCELED"): CANCEL,
    ("DEAD_LETTERED", "PENDING"): REDRIVE,
    ("CANCELED", "PENDING"): REDRIVE,
    ("CANCELED", "RETRYING"): UNDO,
    ("PENDING", "DEAD_LETTERED"): UNDO,
}


def is_late(state: JobState, at: int) -> bool:
    """Whether the job may not start any more: it never has, and its time to start is over."""
    return (
        state.start_by is not None
        and state.start_by <= at
        and state.attempts == 0
        and state.locked_by is None
    )


def verb_of(change: JobChange) -> str:
    """Return the verb that the change shows; ILLEGAL for an arrow that does not exist."""
    old, new = change.old, change.new
    if new is None:
        return DELETE
    if old is None:
        return HAND_OVER if new.status == "RUNNING" else INSERT if new.status == "PENDING" else ILLEGAL
    if old.status == new.status:
        if old.lease_until != new.lease_until or old.delivered != new.delivered:
            return BEAT
        return PROMOTE if new.ready and not old.ready else TOUCH
    if old.status == "RUNNING" and new.status in ("RETRYING", "DEAD_LETTERED"):
        if change.outcome is None:
            return RELEASE if new.status == "RETRYING" else ILLEGAL
        if change.outcome in ("snoozed", "suspended"):  # a sleep costs no attempt either
            return SNOOZE
        # The server ends an attempt for its time limit, if its worker does not report it.
        is_reap = change.outcome == "lease_expired" or new.crashes > old.crashes
        return REAP if is_reap else FAIL
    if new.status == "CANCELED" and is_late(old, change.at):
        return EXPIRE
    return _BY_ARROW.get((old.status, new.status), ILLEGAL)
