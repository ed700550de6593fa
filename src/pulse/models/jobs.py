"""Jobs as the verbs return them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pulse.error_text import class_path_of, traceback_of
from pulse.messages import Items, Reader
from pulse.models.progress import Progress
from pulse.models.unique import UniqueWhile
from pulse.payload import decode_json, decode_result


class JobStatus(StrEnum):
    """The state of a job."""

    PENDING = "PENDING"
    """Waits for its start time, or for a worker."""
    RUNNING = "RUNNING"
    """Held by a worker."""
    RETRYING = "RETRYING"
    """Failed. Runs again at `next_run_at`."""
    COMPLETED = "COMPLETED"
    """Its handler succeeded."""
    DEAD_LETTERED = "DEAD_LETTERED"
    """Failed on its last attempt. `Pulse.retry` gives it more."""
    CANCELED = "CANCELED"
    """Canceled before it completed. `Pulse.retry` runs it again."""

    @property
    def is_finished(self) -> bool:
        """True for COMPLETED, DEAD_LETTERED and CANCELED."""
        return self in _FINISHED


_FINISHED = frozenset({JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that did not succeed."""

    attempt: int
    worker_id: str
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str
    """failed, discarded, timed_out, snoozed, suspended, lease_expired or canceled."""
    error: str
    """Its beginning. `JobInfo.last_error` has the error of the last attempt in full."""

    @property
    def error_class(self) -> str | None:
        """The class of the error, as in `JobInfo.error_class`."""
        return class_path_of(self.error)

    @property
    def traceback(self) -> str | None:
        """The traceback of the error, as in `JobInfo.traceback`: as much as `error` has of it."""
        return traceback_of(self.error)


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job. All times are aware and in UTC."""

    id: str
    status: JobStatus
    topic: str
    priority: int
    attempts: int
    max_attempts: int
    submitted_at: datetime | None
    next_run_at: datetime | None
    """While PENDING or RETRYING: the earliest start."""
    started_at: datetime | None
    """Of the last attempt."""
    finished_at: datetime | None
    lease_until: datetime | None
    """While RUNNING: the lease expires then unless the worker extends it."""
    worker_id: str | None
    """The worker that holds the job, or that finished it."""
    last_error: str | None
    """The error of the last failed attempt. Kept after a success."""
    idempotency_key: str | None
    schedule_id: str | None
    metadata: Mapping[str, str]
    payload: bytes
    """The stored bytes. Empty in lists, which leave it out."""
    error_group: str | None
    """The group of a dead letter. Dead letters with the same error share it."""
    history: tuple[Attempt, ...]
    """The attempts that did not succeed. Empty in lists, which leave it out."""
    snoozes: int = 0
    """Runs that were snoozed. They cost no attempt."""
    crashes: int = 0
    """Attempts that ended in a lost lease, since the last retry by an operator."""
    start_by: datetime | None = None
    """The job is canceled if it has not started by then. None: no limit, or it has started."""
    unique_key: str | None = None
    """The key of its `Unique`. Kept when it no longer holds."""
    unique_while: UniqueWhile | None = None
    """"waiting" or "live" while no other job may have the key. None: the key does not hold, or no longer."""
    lane: str | None = None
    """The key that the limits of its topic count by, such as a customer."""
    progress: Progress | None = None
    """The last stored report, perhaps of an earlier attempt. None once the job is completed."""
    result_bytes: bytes | None = None
    """The stored result of the handler. None if it returned None, and in lists."""
    steps: int = 0
    """How many steps are stored. `Pulse.steps` returns them."""
    suspensions: int = 0
    """Runs that ended with a sleep, or with the wait for a signal. They cost no attempt."""
    waits_for: str | None = None
    """The signal that its handler waits for; "": it sleeps until `next_run_at`. None: neither.

    Of several (`ctx.wait_for_any`), one in each line."""
    workflow_id: str | None = None
    """The workflow that it belongs to."""
    waits_for_jobs: bool = False
    """True while jobs of its workflow that it waits for have not all ended. It is PENDING meanwhile."""
    no_worker: str | None = None
    """A sentence while the job waits and no connected worker takes its topic. None in lists."""

    @property
    def result(self) -> Any:
        """The result of the handler, decoded as JSON; bytes that are not JSON stay bytes.

        `JobHandle.result` decodes it to the handler's return type.
        """
        return None if self.result_bytes is None else decode_result(self.result_bytes)

    @property
    def error_class(self) -> str | None:
        """The class of `last_error`, such as `shop.errors.PaymentDeclined`.

        None if there is no error, or no exception of the handler's: a lost lease has none, nor do
        `pulse.Retry` and `pulse.Discard`.
        """
        return None if self.last_error is None else class_path_of(self.last_error)

    @property
    def traceback(self) -> str | None:
        """The traceback of `last_error` as Python prints it, with its causes. None if it has no class.

        It is made from the stored text: without the frames of the SDK, and of a deep stack the first 5 and
        the last 10 frames.
        """
        return None if self.last_error is None else traceback_of(self.last_error)

    @property
    def args(self) -> Any:
        """The payload decoded as JSON, or None if it is empty."""
        return decode_json(self.payload)


@dataclass(frozen=True, slots=True)
class Page(Items[JobInfo]):
    """One page of jobs, newest first."""

    jobs: tuple[JobInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list_jobs`. None on the last page."""
    looked_back_to: datetime | None = None
    """Set if a list by topic, error or metadata got here before the page was full.

    A call reads 100,000 jobs, and by topic alone 400,000 to find one. `next_cursor` continues with
    older jobs."""


@dataclass(frozen=True, slots=True)
class FoundJobs(Items[JobInfo]):
    """Jobs that a search found, and how far it came."""

    jobs: tuple[JobInfo, ...]
    compared: int
    """How many jobs were compared. 0 without `compared_to`: the field is indexed."""
    compared_to: datetime | None
    """Jobs until then were compared. None: there are no older ones."""
    next_cursor: str | None
    """Pass it to the next `search_jobs`, for more matches or older jobs. None: there are none."""


job_info = Reader(
    JobInfo,
    id="job_id",
    unique_while="unique_scope",
    result_bytes="result",
    waits_for=lambda view: view.waiting.signal if view.HasField("waiting") else None,
)
"""Returns the job in a `JobView`."""
job_page = Reader(
    Page,
    next_cursor="next_page_token",
    # Of ListJobs alone.
    looked_back_to=lambda response: (
        response.looked_back_to.ToDatetime(tzinfo=UTC)
        if "looked_back_to" in response.DESCRIPTOR.fields_by_name and response.HasField("looked_back_to")
        else None
    ),
)
"""Returns the page in a response with jobs."""
found_jobs = Reader(FoundJobs, next_cursor="next_page_token")
"""Returns what a search found."""
