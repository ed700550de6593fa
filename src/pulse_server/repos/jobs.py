"""The port to the jobs table. Each transition is one method, one SQL section and one arrow of the lifecycle.

Every method may raise Unavailable. Batches are judged item by item: an item that loses leaves the others
alone. So does one whose row another session of the database has locked: it is left as it is and is missing in
the answer, like one that lost. Reading it shows which it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from pulse_server.domain.completions import Completions
from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import (
    Cancellation,
    Claim,
    ClaimedJob,
    Ended,
    Job,
    JobFilter,
    Level,
    NewJob,
    PageKey,
    Promotion,
    Reaped,
    Submitted,
    Turn,
)
from pulse_server.domain.leases import ExtendedLeases
from pulse_server.domain.progress import ProgressReport
from pulse_server.domain.reports import FailureReport, SnoozeReport
from pulse_server.domain.status import LIVE, REDRIVABLE, TERMINAL, JobStatus

# Of the payloads of one claim. More would only be kept in memory until it can be sent (docs/adr/0038).
CLAIM_BYTES = 8 * 1024 * 1024
NO_LIMITS: Mapping[str, timedelta] = {}
NO_PROGRESS: Mapping[Claim, ProgressReport] = {}
NO_RESULTS: Mapping[Claim, bytes] = {}
NO_CONFIRMATIONS: Mapping[Claim, timedelta] = {}


class Slots(NamedTuple):
    """Room for jobs: one entry per job wanted, each an index into the workers, in the order of dispatch.

    `confirms` states of each worker whether it can beat before it starts a job. A claim ends early once its
    payloads have `most_bytes`. A claim that fills all slots goes by `packed` instead of `order`, unless
    `packed` is empty or the payloads have `packed_bytes`. ADR-0054

    In a claim with limits, jobs of the first `running` slots would start at once, and others would wait in
    their workers; None: all would start. ADR-0073
    """

    workers: Sequence[str]
    confirms: Sequence[bool]
    order: Sequence[int]
    most_bytes: int = CLAIM_BYTES
    packed: Sequence[int] = ()
    packed_bytes: int = 0
    running: int | None = None

    def is_filled_by(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Whether a claim that brought these jobs may have left others that are ready."""
        return len(jobs) == len(self.order) or sum(len(job.payload) for job in jobs) >= self.most_bytes


class Taker(NamedTuple):
    """A worker with a free place for one job. `confirms` as in Slots."""

    worker_id: str
    confirms: bool


class UniqueHolder(NamedTuple):
    """The job that holds a unique key."""

    job_id: str
    key: str


class JobRepo(Protocol):
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs. Answers for each, in order; AlreadyExists where an id or key is taken."""
        ...

    async def insert_rich_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs, each with its unique key. Answers as insert_jobs.

        Where another job holds the key, the answer is a duplicate with the id of that one.
        """
        ...

    async def hand_over_jobs(
        self,
        jobs: Sequence[NewJob],
        takers: Sequence[Taker | None],
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[Submitted | PulseError]:
        """Insert the jobs, each under the lease of its taker if it has one and nothing stands before it.

        Answers as insert_jobs, and which were taken. With `levels` only jobs of these stand before it.
        """
        ...

    async def claim_batch(
        self,
        topics: Collection[str],
        slots: Slots,
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[ClaimedJob]:
        """Lease the best ready jobs of these topics to the slots' workers, best first: as many as there are
        slots, or fewer if their payloads fill `slots.most_bytes` before; at least one.

        With `levels`, one or more, only these are looked at. They come with the highest priority first.
        """
        ...

    async def complete_jobs(
        self, claims: Sequence[Claim], results: Mapping[Claim, bytes] = NO_RESULTS
    ) -> Completions:
        """Complete what the claims still hold, with these results. Returns the claims that counted."""
        ...

    async def fail_jobs(self, reports: Sequence[FailureReport]) -> dict[Claim, Ended]:
        """Fail what the claims still hold. Returns the claims that counted, and where their jobs went."""
        ...

    async def snooze_jobs(self, reports: Sequence[SnoozeReport]) -> dict[Claim, Ended]:
        """Let what the claims still hold wait, without costing an attempt. Returns the claims that counted.

        A job that has been snoozed MAX_SNOOZES times is dead-lettered.
        """
        ...

    async def extend_leases(
        self,
        claims: Sequence[Claim],
        lease: timedelta,
        limits: Mapping[str, timedelta] = NO_LIMITS,
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
        confirm_within: Mapping[Claim, timedelta] = NO_CONFIRMATIONS,
    ) -> ExtendedLeases:
        """Extend the leases that still hold, and count their attempts.

        `limits` has time limits by topic, under "" that of all other topics: no lease is extended further
        than a lease past its limit. `progress` of some of the jobs is stored in the same write. An attempt in
        `confirm_within` counts only if the statement runs within that time from now.
        """
        ...

    async def release_jobs(
        self,
        claims: Sequence[Claim],
        unread_for: timedelta | None = None,
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
    ) -> dict[str, str]:
        """Give the jobs back with their attempts. Returns the ids that were released, with their topics.

        With `unread_for` only those that were claimed longer ago, and never beaten. `progress` is of handlers
        that were interrupted.
        """
        ...

    async def reap_expired(self, limit: int, expired_before: datetime | None = None) -> list[Reaped]:
        """Reap expired leases, oldest first; with `expired_before` only those that had expired by then.

        Leases of spared workers stay.
        """
        ...

    async def spare_workers(self, worker_ids: Collection[str], lease: timedelta) -> None:
        """Spare these workers for a lease from now on: their beats arrive, and cannot be stored."""
        ...

    async def promote_due(self, limit: int) -> Promotion:
        """Make waiting jobs ready whose time has come, those that are due longest first."""
        ...

    async def promote_in_turn(
        self, limit: int, *, of_each_topic: int, after_topic: str, topics_looked_at: int
    ) -> Turn:
        """Do the same for a few jobs of each topic, in the order of topics, those after one of them."""
        ...

    async def cancel_unstarted(self, limit: int) -> list[Job]:
        """Cancel jobs that have not started by their start_by. Returns them without payloads."""
        ...

    async def cancel_jobs(
        self, job_ids: Collection[str], reason: str, statuses: Collection[JobStatus] = LIVE
    ) -> list[Cancellation]:
        """Cancel those that are not finished, and in one of the statuses. Returns the canceled jobs.

        Several are returned without their payloads and histories.
        """
        ...

    async def retry_jobs(
        self,
        job_ids: Collection[str],
        attempts: int,
        statuses: Collection[JobStatus] = REDRIVABLE,
        *,
        fresh: bool = False,
    ) -> list[Job]:
        """Requeue dead-lettered and canceled jobs with at least that many attempts. `fresh` ones lose their
        steps.

        Those in one of the statuses alone, and without those whose unique key another job holds. Several are
        returned without their payloads and histories.
        """
        ...

    async def unique_holders(self, job_ids: Collection[str]) -> dict[str, UniqueHolder]:
        """Those of the finished jobs that cannot be retried, and the jobs that hold their unique keys."""
        ...

    async def prioritize_jobs(
        self, job_ids: Collection[str], priority: int, statuses: Collection[JobStatus] = LIVE
    ) -> list[Job]:
        """Give those another priority that are not finished, and in one of the statuses. Returns them.

        Several are returned without their payloads and histories.
        """
        ...

    async def delete_jobs(
        self, job_ids: Collection[str], statuses: Collection[JobStatus] = TERMINAL
    ) -> dict[str, JobStatus]:
        """Delete those that are finished, and in one of the statuses. Returns what they were, by id."""
        ...

    async def get_job(self, job_id: str) -> Job | None: ...

    async def look_up_jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        """What judging a report needs: status, attempts, holder, times and history."""
        ...

    async def job_statuses(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        """The statuses of those jobs that there are, by id."""
        ...

    async def list_jobs(
        self, wanted: JobFilter, *, limit: int, offset: int = 0, after: PageKey | None = None
    ) -> list[Job]:
        """Newest first, without payloads and histories."""
        ...

    async def matching_jobs(
        self, wanted: JobFilter, *, limit: int, after: PageKey | None = None
    ) -> list[PageKey]:
        """Newest first, their keys alone."""
        ...

    async def count_matching_jobs(self, wanted: JobFilter) -> int: ...

    async def find_jobs(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with these hexadecimal digits."""
        ...

    async def current_claims(self, claims: Sequence[Claim]) -> set[Claim]:
        """Those of the claims that still hold, by the fence that their beats would have to pass."""
        ...

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]: ...

    async def steady_for(self, own: timedelta) -> timedelta:
        """For how long a server has been in touch with the database at any time, this one for `own`."""
        ...

    async def database_now(self) -> datetime:
        """The time by the clock that every rule goes by."""
        ...
