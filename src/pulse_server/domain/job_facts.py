"""The facts that decide whether a job may start, and the explanation that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pulse_server.dispatch.rules import WorkerState


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job with its topic, lane, workflow and worker; or a topic without unfinished jobs."""

    now: datetime
    """The clock of the database."""
    topic: str
    id: str = ""
    status: str = ""
    queued: bool = False
    waits: bool = False
    """Not due, or not promoted yet."""
    is_ready: bool = False
    held: bool = False
    """It waits for jobs of its workflow."""
    attempts: int = 0
    max_attempts: int = 0
    next_run_at: datetime | None = None
    start_by: datetime | None = None
    started_at: datetime | None = None
    lease_until: datetime | None = None
    finished_at: datetime | None = None
    locked_by: str = ""
    waits_for: str | None = None
    last_error: str = ""
    snoozed: str | None = None
    """Why, if its last run ended with a snooze."""
    lane: str = ""
    # Pauses.
    all_paused: bool = False
    all_paused_at: datetime | None = None
    all_paused_by: str = ""
    all_reason: str = ""
    paused_at: datetime | None = None
    """None: the topic is not paused."""
    paused_by: str = ""
    reason: str = ""
    # Limits of the topic, or of its pool.
    pool: str = ""
    limit: int | None = None
    running: int | None = None
    starts: int | None = None
    period: timedelta | None = None
    started: int | None = None
    rate_free_at: datetime | None = None
    """None: the rate has room."""
    held_until: datetime | None = None
    held_by_operator: bool = False
    pool_use: Sequence[str] = ()
    """"6 of render", most first."""
    # The lane of a ready job.
    laned: bool = False
    turns_before: int | None = None
    lane_limit: int | None = None
    lane_free: int | None = None
    """Its places that a job may take now. None: its topic has no lanes."""
    lane_running: int = 0
    lane_runs: str = ""
    """A running job of the lane."""
    lane_starts: int | None = None
    lane_period: timedelta | None = None
    lane_started: int | None = None
    lane_rate_free_at: datetime | None = None
    ordered: bool = False
    ahead_in_lane: int = 0
    has_more_ahead_in_lane: bool = False
    """There are more than these."""
    first_in_order: str = ""
    """The job that is next in an ordered lane, or runs there."""
    # A running job, and a job of a workflow.
    is_connected: bool = False
    """Its worker is connected to a server."""
    spared_until: datetime | None = None
    parents_left: int = 0
    parents: Sequence[tuple[str, str, str]] = ()
    """The id, name and status of the first unended parents."""

    # The transaction that has locked the row of the job.
    is_row_locked: bool = False
    holder_pid: int | None = None
    holder_user: str = ""
    holder_application: str = ""
    holder_since: datetime | None = None
    """The times and applications of other roles' sessions are visible only with pg_read_all_stats."""
    holder_prepared: str = ""
    """The name of a prepared transaction."""

    def extended_within(self, time: timedelta, lease: timedelta) -> bool:
        """Whether its lease began or was extended so lately."""
        return self.lease_until is not None and self.now - (self.lease_until - lease) < time


@dataclass(frozen=True, slots=True)
class TopicWorkers:
    """The connected workers that take a topic, on all servers."""

    count: int = 0
    capacity: int = 0
    free: int = 0
    """Slots that may take a job of the topic now."""
    running: Sequence[tuple[str, int]] = ()
    """The topics of the jobs that they hold, most first."""
    left_at: datetime | None = None
    """When the last one left this server, if there is none."""
    similar: str = ""
    """A topic with a similar name that has workers, if this one has none."""
    frozen: int = 0
    """Workers whose lease has expired while they were connected: they get one job at a time."""
    unread: int = 0
    """Workers that have not read what was sent to them: they get no more."""
    closing: int = 0
    unlisted: int = 0
    """Workers whose topics are not all known. Counted if no known worker takes this one."""
    quiet: Sequence[tuple[str, WorkerState]] = ()
    """Those that an operator has quieted or stops, which take no jobs and do not count above."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The jobs that the workers of a topic claim first."""

    jobs: int
    more: bool
    """There are more than these."""
    topics: Sequence[tuple[str, int]] = ()
    """Most first."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job does not run, or why a topic starts no jobs."""

    cause: str
    """A stable code. Empty: nothing stops it."""
    sentence: str
    brief: str
    """The sentence in a few words."""
    remedy: str = ""
    expected_at: datetime | None = None
    """About when it goes on, if that is known."""
    job_id: str = ""
    """Empty: the topic as a whole."""
