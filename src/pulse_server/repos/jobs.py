"""The port to the jobs table. Each transition is one method, one SQL section and one arrow of the lifecycle.

Every method may raise Unavailable. Batches are judged item by item: an item that loses does not
affect the rest. An item is also skipped if another session has locked its row. A skipped item is
missing in the answer, like one that lost. Read the job to see which it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

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
    Reaped,
    Submitted,
)
from pulse_server.domain.leases import ExtendedLeases
from pulse_server.domain.progress import ProgressReport
from pulse_server.domain.promotions import Promotion, Turn
from pulse_server.domain.reports import FailureReport, SnoozeReport
from pulse_server.domain.slots import Slots, Taker
from pulse_server.domain.status import LIVE, REDRIVABLE, TERMINAL, JobStatus
from pulse_server.domain.undo import ActedOn, Restored
from pulse_server.domain.unique import Scope, UniqueHolder

NO_TIME_LIMITS: Mapping[str, timedelta] = {}
NO_PROGRESS: Mapping[Claim, ProgressReport] = {}
NO_RESULTS: Mapping[Claim, bytes] = {}
NO_CONFIRMATIONS: Mapping[Claim, timedelta] = {}


class JobRepo(Protocol):
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs. Answers for each, in order; AlreadyExists where an id or key is taken."""
        ...

    async def insert_rich_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs, each with its unique key. Answers as insert_jobs.

        If another job holds the key, the answer is a duplicate with the id of that job.
        """
        ...

    async def hand_over_jobs(
        self,
        jobs: Sequence[NewJob],
        takers: Sequence[Taker | None],
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[Submitted | PulseError]:
        """Insert the jobs. Lease each to its taker, if it has one and no ready job comes first.

        Answers as insert_jobs, and also names the leased jobs. With `levels`, only ready jobs at
        these levels can come first.
        """
        ...

    async def claim_batch(
        self,
        topics: Collection[str],
        slots: Slots,
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[ClaimedJob]:
        """Lease the best ready jobs of these topics to the slots' workers, best first.

        Returns one job per slot, or fewer if there are no more or their payloads reach
        `slots.most_bytes`. The first job is leased whatever its size. With `levels`, one or more
        and the highest priority first, only these are read.
        """
        ...

    async def complete_jobs(
        self, claims: Sequence[Claim], results: Mapping[Claim, bytes] = NO_RESULTS
    ) -> Completions:
        """Complete jobs whose claims still hold. Returns the claims that counted."""
        ...

    async def fail_jobs(self, reports: Sequence[FailureReport]) -> dict[Claim, Ended]:
        """Fail jobs whose claims still hold. Returns the claims that counted and their outcomes."""
        ...

    async def snooze_jobs(self, reports: Sequence[SnoozeReport]) -> dict[Claim, Ended]:
        """Put jobs whose claims still hold back to wait. This costs no attempt.

        Returns the claims that counted. A job that was snoozed MAX_SNOOZES times is dead-lettered.
        """
        ...

    async def extend_leases(
        self,
        claims: Sequence[Claim],
        lease: timedelta,
        time_limits: Mapping[str, timedelta] = NO_TIME_LIMITS,
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
        confirm_within: Mapping[Claim, timedelta] = NO_CONFIRMATIONS,
    ) -> ExtendedLeases:
        """Extend the leases that still hold, and count their attempts.

        `time_limits` has a time limit per topic, and under "" the limit for all other topics. No lease
        is extended more than one lease past its limit. `progress` is stored in the same write. An
        attempt in `confirm_within` counts only if the statement runs within that time from now.
        """
        ...

    async def take_back_starts(self, confirmed_until: Mapping[Claim, datetime]) -> None:
        """Stop counting attempts that were confirmed too late for a start.

        Each claim comes with the end of the lease that its confirmation left: a lease that was extended
        since keeps its attempt.
        """
        ...

    async def release_jobs(
        self,
        claims: Sequence[Claim],
        unread_for: timedelta | None = None,
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
    ) -> dict[str, str]:
        """Requeue the jobs without costing an attempt. Returns the topic of each released job, by
        id.

        With `unread_for`, only release jobs that were claimed longer ago and had no heartbeat.
        `progress` comes from interrupted handlers.
        """
        ...

    async def reap_expired(self, limit: int, expired_before: datetime | None = None) -> list[Reaped]:
        """Reap expired leases, oldest first. Leases of spared workers stay.

        With `expired_before`, only leases that had expired by then.
        """
        ...

    async def spare_workers(self, worker_ids: Collection[str], lease: timedelta) -> None:
        """Spare these workers for one lease: their heartbeats arrive but cannot be stored."""
        ...

    async def promote_due(self, limit: int) -> Promotion:
        """Make due jobs ready, longest due first."""
        ...

    async def promote_in_turn(
        self, limit: int, *, of_each_topic: int, after_topic: str, topics_looked_at: int
    ) -> Turn:
        """Make a few due jobs of each topic ready, by topic name, starting after `after_topic`."""
        ...

    async def cancel_unstarted(self, limit: int) -> list[Job]:
        """Cancel jobs that have not started by their start_by. Returns them without payloads."""
        ...

    async def cancel_jobs(
        self,
        job_ids: Collection[str],
        reason: str,
        statuses: Collection[JobStatus] = LIVE,
        *,
        action: str | None = None,
    ) -> list[Cancellation]:
        """Cancel unfinished jobs that have one of the statuses. Returns the canceled jobs.

        Here and in the next two, `undo_jobs` reverts the `action`. Several jobs are returned without
        payloads and histories.
        """
        ...

    async def retry_jobs(
        self,
        job_ids: Collection[str],
        attempts: int,
        statuses: Collection[JobStatus] = REDRIVABLE,
        *,
        fresh: bool = False,
        at_once: bool = False,
        action: str | None = None,
    ) -> list[Job]:
        """Requeue dead-lettered and canceled jobs that have one of the statuses.

        Each gets at least `attempts` more attempts; with `fresh` it loses its steps. A job that was
        canceled before its first claim keeps a later start time, unless `at_once`. A job whose
        unique key another job holds is skipped. Several jobs are returned without payloads and
        histories.
        """
        ...

    async def unique_holders(
        self, job_ids: Collection[str], scopes: Collection[Scope] = (Scope.LIVE,)
    ) -> dict[str, UniqueHolder]:
        """The finished jobs that cannot be retried, each with the holder of its unique key."""
        ...

    async def prioritize_jobs(
        self,
        job_ids: Collection[str],
        priority: int,
        statuses: Collection[JobStatus] = LIVE,
        *,
        action: str | None = None,
    ) -> list[Job]:
        """Set the priority of unfinished jobs that have one of the statuses. Returns these jobs.

        Several jobs are returned without payloads and histories.
        """
        ...

    async def jobs_of_action(self, action: str, *, after: str | None, limit: int) -> list[ActedOn]:
        """The jobs that the action changed last, by id, after this id."""
        ...

    async def undo_jobs(self, job_ids: Collection[str], action: str) -> list[Restored]:
        """Revert the action on jobs that are as it left them. Returns these jobs.

        A job whose unique key another job holds is skipped.
        """
        ...

    async def delete_jobs(
        self, job_ids: Collection[str], statuses: Collection[JobStatus] = TERMINAL
    ) -> dict[str, JobStatus]:
        """Delete finished jobs that have one of the statuses. Returns the status of each, by id."""
        ...

    async def get_job(self, job_id: str) -> Job | None: ...

    async def look_up_jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Read the fields that judge a report: status, attempts, holder, times and history."""
        ...

    async def jobs_of_unended_workflows(self, job_ids: Collection[str]) -> set[str]:
        """Those of the jobs whose workflow has not ended. They cannot be deleted."""
        ...

    async def canceled_workflows_of(self, job_ids: Collection[str]) -> dict[str, str]:
        """Those of the jobs that wait in a canceled workflow, each with it. They cannot be retried."""
        ...

    async def job_statuses(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        """The statuses of the existing jobs, by id."""
        ...

    async def list_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[Job]:
        """Newest first, without payloads and histories. `until` is the last that may be read."""
        ...

    async def matching_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[PageKey]:
        """The keys of matching jobs, newest first."""
        ...

    async def count_matching_jobs(
        self, wanted: JobFilter, *, until: PageKey | None = None, most: int | None = None
    ) -> int:
        """How many jobs match. It may stop once there are `most`."""
        ...

    async def find_jobs(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with these hexadecimal digits."""
        ...

    async def current_claims(self, claims: Sequence[Claim]) -> set[Claim]:
        """The claims that still hold, by the same fence as a heartbeat."""
        ...

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]: ...

    async def steady_for(self, own: timedelta) -> timedelta:
        """How long at least one server has been connected without a gap; this one for `own`."""
        ...

    async def database_now(self) -> datetime:
        """The database's clock, which every rule uses."""
        ...
