"""The jobs table. Each transition is one method, one SQL section of its name, and one arrow of the lifecycle.

Every method may raise Unavailable. Batches are judged item by item: an item that loses does not
affect the rest. An item is also skipped if another session has locked its row. A skipped item is
missing in the answer, like one that lost. Read the job to see which it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from pulse.topic_settings import Entries, to_json
from pulse_server.base import bounds, tuning
from pulse_server.base.bounds import SNOOZED_TOO_OFTEN, SNOOZED_TOO_OFTEN_GROUP
from pulse_server.base.errors import PulseError
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Rows, statements
from pulse_server.jobs import inserts
from pulse_server.jobs import inserts as jobs_inserts
from pulse_server.jobs.leases import (
    DatabaseTime,
    ReapPolicy,
    RowLocks,
    claim_across_topics,
    claim_in_topic,
    complete_jobs,
    reap,
    with_steps,
)
from pulse_server.jobs.new_jobs import NewJob, Scope, Submitted
from pulse_server.jobs.reads import (
    ClaimedRows,
    PostgresJobReads,
    cancellation_from_row,
    claim_columns,
    ended_from_rows,
    in_lock_order,
    job_from_row,
    levels_from_rows,
    progress_column,
    progress_from_json,
)
from pulse_server.jobs.reports import (
    NO_PROGRESS,
    Completions,
    ExtendedLeases,
    FailureReport,
    Promotion,
    Restored,
    Slots,
    SnoozeReport,
    StoredProgress,
    Taker,
    Turn,
    rest_of_canceled,
)
from pulse_server.jobs.rules import (
    LIVE,
    REDRIVABLE,
    TERMINAL,
    Cancellation,
    Claim,
    ClaimedJob,
    Ended,
    Job,
    JobStatus,
    Level,
    ProgressReport,
    Reaped,
)

# ---------------------------------------------------------------- leases
# Heartbeats: the statement that extends leases, within time limits, and stores progress.


async def extend_leases(
    rows: RowLocks,
    connections: Connections,
    name: str,
    claims: Sequence[Claim],
    lease: timedelta,
    time_limits: Mapping[str, timedelta],
    progress: Mapping[Claim, ProgressReport],
    confirm_by: Mapping[Claim, datetime],
) -> ExtendedLeases:
    is_plain = not (time_limits or progress or confirm_by)
    # Each claim once: of two entries for a job an update takes either, and one may lack the
    # progress.
    ordered = in_lock_order(claims if is_plain else list(dict.fromkeys(claims)))
    answers = await rows.fetch(
        connections,
        name,
        *claim_columns(ordered),
        lease,
        _seconds(time_limits) if time_limits else None,
        progress_column(map(progress.get, ordered)) if progress else None,
        [_epoch(confirm_by.get(claim)) for claim in ordered] if confirm_by else None,
    )
    if is_plain and len(answers) == len(claims):  # nearly always: skip converting the ids to text
        return ExtendedLeases(set(claims), set(), set(), [], {})
    answer = ExtendedLeases(set(), set(), set(), [], {})
    for job_id, worker_id, attempt, run, delivered, is_over, topic, text, confirmed_until in answers:
        claim = Claim(str(job_id), worker_id, attempt, run)
        (answer.over if is_over else answer.extended if delivered else answer.late).add(claim)
        if confirmed_until is not None:
            answer.confirmed_until[claim] = confirmed_until
        if (stored := progress_from_json(text)) is not None:
            answer.stored.append(StoredProgress(claim, topic, stored))
    return answer


def kept_claims(rows: Rows, asked: Sequence[Claim]) -> set[Claim]:
    """The claims that the statement returned."""
    if len(rows) == len(asked):
        return set(asked)
    return {Claim(str(job_id), *fence) for job_id, *fence in rows}


def _seconds(time_limits: Mapping[str, timedelta]) -> str:
    return json.dumps({topic: limit.total_seconds() for topic, limit in time_limits.items()})


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


# ---------------------------------------------------------------- jobs

_SQL = statements(
    *(f"jobs/transitions/{name}.sql" for name in ("jobs", "work", "reaping", "promotion", "undo")),
    "jobs/locks.sql",
    "jobs/queries.sql",
)

NO_TIME_LIMITS: Mapping[str, timedelta] = {}
NO_RESULTS: Mapping[Claim, bytes] = {}
NO_CONFIRMATIONS: Mapping[Claim, timedelta] = {}
_DEFAULT_RUNS: Entries = {"max_crashes": tuning.MAX_CRASHES}


class PostgresJobRepo(PostgresJobReads):
    def __init__(
        self,
        database: Database,
        runs: Entries = _DEFAULT_RUNS,
        lease: timedelta = tuning.LEASE_TTL,
    ) -> None:
        """`runs` has the settings of topics without their own; `lease` is the grace of time limits."""
        super().__init__(database)
        stored = to_json(runs)
        self._backoff = json.dumps(stored["backoff"]) if "backoff" in stored else None
        self._reaping = ReapPolicy(self._backoff, runs["max_crashes"], runs.get("attempt_timeout"), lease)
        self._rows = RowLocks(_SQL)
        self._time = DatabaseTime()

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs. Answers for each, in order; AlreadyExists where an id or key is taken."""
        return await inserts.insert(self._database.hot, "insert_jobs", jobs)

    async def insert_rich_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs, each with its unique key. Answers as insert_jobs.

        If another job holds the key, the answer is a duplicate with the id of that job.
        """
        return await jobs_inserts.insert_unique(self._database.hot, "insert_rich_jobs", jobs)

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
        return await jobs_inserts.hand_over(self._database.hot, "hand_over_jobs", jobs, takers, lease, levels)

    async def claim_batch(
        self,
        topics: Collection[str],
        slots: Slots,
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[ClaimedJob] | ClaimedRows:
        """Lease the best ready jobs of these topics to the slots' workers, best first.

        Returns one job per slot, or fewer if there are no more or their payloads reach
        `slots.most_bytes`. The first job is leased whatever its size. With `levels`, one or more
        and the highest priority first, only these are read.
        """
        claim = claim_in_topic if len(topics) == 1 else claim_across_topics
        jobs = await claim(self._database.hot, "claim_batch", topics, slots, lease, levels)
        return jobs if isinstance(jobs, ClaimedRows) else await with_steps(self._database.hot, jobs)

    async def complete_jobs(
        self, claims: Sequence[Claim], results: Mapping[Claim, bytes] = NO_RESULTS
    ) -> Completions:
        """Complete jobs whose claims still hold. Returns the claims that counted."""
        now = self._time.now() or await self.database_now()  # read by each tick of the watchdog
        return await complete_jobs(self._rows, self._database.hot, "complete_jobs", claims, results, now)

    async def fail_jobs(self, reports: Sequence[FailureReport]) -> dict[Claim, Ended]:
        """Fail jobs whose claims still hold. Returns the claims that counted and their outcomes."""
        ordered = sorted(reports, key=lambda report: report.claim.job_id)
        rows = await self._rows.fetch(
            self._database.hot,
            "fail_jobs",
            *claim_columns([report.claim for report in ordered]),
            [report.error for report in ordered],
            [report.retry_after for report in ordered],
            [report.discard for report in ordered],
            [report.error_group for report in ordered],
            [report.timed_out for report in ordered],
            [report.retry_after_is_policy for report in ordered],
            self._backoff,
            progress_column(report.progress for report in ordered),
        )
        return ended_from_rows(rows)

    async def snooze_jobs(self, reports: Sequence[SnoozeReport]) -> dict[Claim, Ended]:
        """Put jobs whose claims still hold back to wait. This costs no attempt.

        Returns the claims that counted. A job that was snoozed MAX_SNOOZES times is dead-lettered.
        """
        ordered = sorted(reports, key=lambda report: report.claim.job_id)
        rows = await self._rows.fetch(
            self._database.hot,
            "snooze_jobs",
            *claim_columns([report.claim for report in ordered]),
            [report.delay for report in ordered],
            [report.reason for report in ordered],
            bounds.MAX_SNOOZES,
            SNOOZED_TOO_OFTEN,
            SNOOZED_TOO_OFTEN_GROUP,
            progress_column(report.progress for report in ordered),
        )
        return ended_from_rows(rows)

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
        confirm_by: dict[Claim, datetime] = {}
        if confirm_within:
            now = self._time.now() or await self.database_now()
            confirm_by = {claim: now + within for claim, within in confirm_within.items()}
        beats, name = self._database.beats, "extend_leases"
        return await extend_leases(self._rows, beats, name, claims, lease, time_limits, progress, confirm_by)

    async def take_back_starts(self, confirmed_until: Mapping[Claim, datetime]) -> None:
        """Stop counting attempts that were confirmed too late for a start.

        Each claim comes with the end of the lease that its confirmation left: a lease that was extended
        since keeps its attempt.
        """
        ordered = in_lock_order(list(confirmed_until))
        ends = [confirmed_until[claim] for claim in ordered]
        await self._rows.fetch(self._database.beats, "take_back_starts", *claim_columns(ordered), ends)

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
        ordered = in_lock_order(claims)
        claimed, reported = claim_columns(ordered), progress_column(map(progress.get, ordered))
        rows = await self._rows.fetch(self._database.hot, "release_jobs", *claimed, unread_for, reported)
        return {str(row["id"]): row["topic"] for row in rows}

    async def reap_expired(self, limit: int, expired_before: datetime | None = None) -> list[Reaped]:
        """Reap expired leases, oldest first. Leases of spared workers stay.

        With `expired_before`, only leases that had expired by then.
        """
        expired_before = expired_before or await self.database_now()
        return await reap(
            self._database.hot, "reap_expired", _SQL["reap_expired"], limit, expired_before, self._reaping
        )

    async def spare_workers(self, worker_ids: Collection[str], lease: timedelta) -> None:
        """Spare these workers for one lease: their heartbeats arrive but cannot be stored."""
        await self._fetch(self._database.beats, "spare_workers", sorted(worker_ids), lease)

    async def promote_due(self, limit: int) -> Promotion:
        """Make due jobs ready, longest due first."""
        *topics, upcoming = await self._fetch(self._database.hot, "promote_due", limit)
        seconds = upcoming["next_due_in_seconds"]
        return Promotion(
            promoted=sum(row["promoted"] for row in topics),
            topics=frozenset(row["topic"] for row in topics),
            next_due_in=None if seconds is None else timedelta(seconds=max(0.0, seconds)),
            levels=levels_from_rows(topics),
        )

    async def promote_in_turn(
        self, limit: int, *, of_each_topic: int, after_topic: str, topics_looked_at: int
    ) -> Turn:
        """Make a few due jobs of each topic ready, by topic name, starting after `after_topic`."""
        *topics, last = await self._fetch(
            self._database.hot, "promote_in_turn", limit, of_each_topic, after_topic, topics_looked_at
        )
        return Turn(frozenset(row["topic"] for row in topics), last["last_topic"], levels_from_rows(topics))

    async def cancel_unstarted(self, limit: int) -> list[Job]:
        """Cancel jobs that have not started by their start_by. Returns them without payloads."""
        rows = await self._fetch(self._database.hot, "cancel_unstarted", limit)
        return [job_from_row(row) for row in rows]

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
        rows = await self._rows.fetch(
            self._database.operators, "cancel_jobs", sorted(job_ids), reason, list(statuses), action
        )
        return [cancellation_from_row(row) for row in rows]

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
        send = partial(self._rows.fetch, self._database.operators, "retry_jobs")
        wanted = list(statuses)
        rest = rest_of_canceled(self._reaping.grace)
        rows = await jobs_inserts.without_held(
            send, self.unique_holders, job_ids, attempts, wanted, fresh, rest, at_once, action
        )
        return [job_from_row(row) for row in rows]

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
        rows = await self._rows.fetch(
            self._database.operators, "prioritize_jobs", sorted(job_ids), priority, list(statuses), action
        )
        return [job_from_row(row) for row in rows]

    async def undo_jobs(self, job_ids: Collection[str], action: str) -> list[Restored]:
        """Revert the action on jobs that are as it left them. Returns these jobs.

        A job whose unique key another job holds is skipped.
        """
        send = partial(self._rows.fetch, self._database.operators, "undo_jobs")
        holders = partial(self.unique_holders, scopes=list(Scope))
        rows = await jobs_inserts.without_held(send, holders, job_ids, action)
        return [Restored(job_from_row(row), JobStatus(row["status_before"])) for row in rows]

    async def delete_jobs(
        self, job_ids: Collection[str], statuses: Collection[JobStatus] = TERMINAL
    ) -> dict[str, JobStatus]:
        """Delete finished jobs that have one of the statuses. Returns the status of each, by id."""
        rows = await self._rows.fetch(
            self._database.operators, "delete_jobs", sorted(job_ids), list(statuses)
        )
        return {str(row["id"]): JobStatus(row["status"]) for row in rows}

    async def current_claims(self, claims: Sequence[Claim]) -> set[Claim]:
        """The claims that still hold, by the same fence as a heartbeat."""
        rows = await self._fetch(
            self._database.beats, "current_claims", *claim_columns(in_lock_order(claims))
        )
        return kept_claims(rows, claims)

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]:
        rows = await self._fetch(self._database.hot, "topics_with_ready_jobs", "\n".join(topics))
        return {row["topic"] for row in rows}

    async def steady_for(self, own: timedelta) -> timedelta:
        """How long at least one server has been connected without a gap; this one for `own`."""
        rows = await self._fetch(self._database.hot, "steady_for", own)
        steady_for: timedelta = rows[0]["steady_for"]
        return steady_for

    async def database_now(self) -> datetime:
        """The database's clock, which every rule uses."""
        rows = await self._fetch(self._database.hot, "database_now")
        now: datetime = rows[0]["now"]
        self._time.record(now)
        return now

    async def _fetch(self, connections: Connections, name: str, *args: object) -> Rows:
        return await connections.fetch(name, _SQL[name], *args)
