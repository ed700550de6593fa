"""Submits: store new jobs, many requests in one statement; and the loops that make jobs ready.

`Arrivals` publishes what applications stored or completed in transactions of their own (ADR-0075). `Promoter`
makes delayed and retried jobs ready when their time has come. `StartLimits` cancels jobs that have not
started within the time that they were submitted with.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError
from pulse_server.base.ids import new_id
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.base.sharing import GroupCommit
from pulse_server.database.audit import MOST_IDS, Action, CountedCalls
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.new_jobs import NewJob, Submitted, UniformJobs, kinds
from pulse_server.jobs.reports import Arrival
from pulse_server.jobs.rules import Cancellation, Claim, Level
from pulse_server.jobs.store import PostgresJobRepo

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~25 ms.
SUBMIT_BATCH = 1000
# Two statements in flight keep the database busy while this process prepares the next batch.
SUBMIT_SLOTS = 2


class Submissions:
    def __init__(
        self,
        repo: PostgresJobRepo,
        hub: Hub,
        publisher: Publisher,
        *,
        grouping: type[GroupCommit[Any, Any]] = GroupCommit,
    ) -> None:
        self._repo = repo
        self._hub = hub
        self._publisher = publisher
        self._commits: GroupCommit[NewJob, Submitted | PulseError] = grouping(
            self._insert, slots=SUBMIT_SLOTS, limit=SUBMIT_BATCH, size_of=_size, size_of_all=_size_of_all
        )

    async def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs and answer for each, in order. A job answered as submitted is durable."""
        return await self._commits.add_all(jobs)

    async def _insert(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        self._publisher.batch_sent("submit", len(jobs))
        sent_at = lease_clock()
        answers: Sequence[Submitted | PulseError] | None = None
        if any(job.unique is not None for job in kinds(jobs)):
            answers = await self._insert_unique(jobs)
        else:
            answers = await self._hub.hand_over(jobs)
        if answers is None:
            answers = await self._repo.insert_jobs(jobs)
        self._publisher.submitted(jobs, answers, lease_clock() - sent_at)
        return answers

    async def _insert_unique(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert jobs, some with a unique key. One statement for each kind."""
        unique = [job for job in jobs if job.unique is not None]
        plain = [job for job in jobs if job.unique is None]
        rest = iter(await self._repo.insert_jobs(plain) if plain else ())
        of_unique = iter(await self._repo.insert_rich_jobs(unique))
        return [next(rest if job.unique is None else of_unique) for job in jobs]


def _size(job: NewJob) -> int:
    """About how many bytes the job adds to a statement."""
    if job.metadata is None:
        return len(job.payload)
    return len(job.payload) + sum(len(key) + len(value) for key, value in job.metadata.items())


def _size_of_all(jobs: Sequence[NewJob]) -> int:
    if isinstance(jobs, UniformJobs):
        return sum(map(len, jobs.payloads)) + len(jobs) * _size(jobs.template)
    return sum(map(_size, jobs))


def replacements_of(arrivals: Sequence[Arrival]) -> list[Action]:
    """Return an action for each role that replaced waiting jobs, with the number of them as its count."""
    by_role: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        if arrival.replaced_by is not None:
            by_role.setdefault(arrival.replaced_by, []).append(arrival)
    return [
        Action(
            new_id(),
            "pulse.enqueue",
            user=role,
            role="sql",
            address="",
            topics=tuple(dict.fromkeys(arrival.topic for arrival in replaced))[:MOST_IDS],
            ids=tuple(dict.fromkeys(job_id for arrival in replaced for job_id in arrival.ids))[:MOST_IDS],
            asked={"on_conflict": "replace"},
            count=len(replaced),
        )
        for role, replaced in by_role.items()
    ]


# A job is found this long after the commit of its transaction, at the latest; and at once if the
# application wakes a server.
ARRIVALS_INTERVAL = timedelta(milliseconds=250)
ARRIVALS_BATCH = 1000
# Clients may ask for a look after each of their commits. Looks are at least this far apart.
SHORTEST_PAUSE = timedelta(milliseconds=20)
# While a transaction is held open, vacuum cannot remove rows that were taken, and each look walks
# them. The loop rests this many times as long as a look takes.
REST = 4

_SQL = statements("work/submissions.sql")

log = logging.getLogger(__name__)


class ArrivalQueries:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_arrivals(self, most: int) -> list[Arrival]:
        """Take some of them. Another server does not get these."""
        rows = await self._database.hot.fetch("take_arrivals", _SQL["take_arrivals"], most)
        return [_arrival(*row) for row in rows]

    async def record_defaults(self, max_attempts: int, max_result_bytes: int, max_workflow_jobs: int) -> None:
        """Let the functions of the interface follow the settings of this server."""
        await self._database.hot.fetch(
            "record_defaults", _SQL["record_defaults"], max_attempts, max_result_bytes, max_workflow_jobs
        )


class Arrivals:
    """Takes arrivals and publishes them.

    A server that dies in between costs as much as a lost wake-up: a full look finds the jobs. The
    statistics miss them.
    """

    def __init__(
        self,
        queries: ArrivalQueries,
        publisher: Publisher,
        *,
        max_attempts: int,
        max_result_bytes: int,
        max_workflow_jobs: int = tuning.MAX_WORKFLOW_JOBS,
        counted: CountedCalls | None = None,
    ) -> None:
        """The numbers are the settings of this server, which the functions of the interface follow.

        Without `counted`, jobs that were replaced are only logged.
        """
        self._queries = queries
        self._publisher = publisher
        self._defaults: tuple[int, int, int] | None = (max_attempts, max_result_bytes, max_workflow_jobs)
        self._counted = counted
        self._looked_at = -math.inf
        self.loop = Loop("arrivals", self.tick, ARRIVALS_INTERVAL)

    async def tick(self) -> timedelta:
        await asyncio.sleep(self._looked_at + SHORTEST_PAUSE.total_seconds() - lease_clock())
        taken: Sequence[Arrival] | None = None
        while taken is None or len(taken) == ARRIVALS_BATCH:
            sent_at = lease_clock()
            taken = await self._queries.take_arrivals(ARRIVALS_BATCH)
            self._looked_at = lease_clock()
            self._publisher.arrived(taken, self._looked_at - sent_at)
            self._record_replaced(taken)
        # After the look: another session may have locked the row of the settings.
        if self._defaults is not None:
            await self._queries.record_defaults(*self._defaults)
            self._defaults = None
        return max(ARRIVALS_INTERVAL, REST * timedelta(seconds=self._looked_at - sent_at))

    def _record_replaced(self, taken: Sequence[Arrival]) -> None:
        """Log who replaced waiting jobs, as of a submit, and count it for the audit.

        Not an entry for each, in its transaction: a debounced job may be replaced a thousand times a second.
        """
        for action in replacements_of(taken):
            who = {"user": action.user, "role": action.role, "address": action.address}
            log.info("jobs_replaced", extra={**who, "ids": list(action.ids), "count": action.count})
            if self._counted is not None:
                count, action.count = action.count, 0
                self._counted.record(action, "OK", count=count)


def _arrival(
    topic: str,
    jobs: int,
    ids: list[object] | None,
    priority: int | None,
    age_seconds: float,
    worker_id: str | None,
    attempt: int,
    run: int,
    ran_seconds: float,
    replaced_by: str | None,
) -> Arrival:
    job_ids = [str(job_id) for job_id in ids or ()]
    if worker_id is not None:
        return Arrival(topic, 0, (), None, Claim(job_ids[0], worker_id, attempt, run), ran_seconds)
    level = None if priority is None else Level(topic, priority, age_seconds)
    return Arrival(topic, jobs, job_ids, level, replaced_by=replaced_by)


# The longest that a due job waits for the promoter; usually it sleeps exactly until the next one is due.
PROMOTE_INTERVAL = timedelta(milliseconds=500)
PROMOTE_BATCH = 1000
# No tighter than this, or a stream of jobs due a millisecond apart would make it spin.
PROMOTE_SHORTEST_SLEEP = timedelta(milliseconds=20)
# While more is due than a batch: how many jobs each topic gets in its turn, and how many topics one statement
# looks at, due or not, at 5 µs each (docs/figures.md#promotion).
PROMOTE_SHARE = 20
PROMOTE_TOPICS = 2000


class Promoter:
    """Sleeps until the next job is due, at most for its interval: earlier jobs may be submitted.

    While more jobs are due than fit into a batch, topics take turns. A walk over the topics follows
    each batch, so that no topic waits for the whole backlog of another. docs/figures.md#promotion
    """

    def __init__(self, repo: PostgresJobRepo, publisher: Publisher, *, interval: timedelta) -> None:
        self._repo = repo
        self._publisher = publisher
        self._interval = interval
        self._last_topic = ""
        self.loop = Loop("promoter", self.tick, interval)

    async def tick(self) -> timedelta:
        while True:
            sent_at = lease_clock()
            promotion = await self._repo.promote_due(PROMOTE_BATCH)
            self._publisher.promoted(promotion.topics, _older(promotion.levels, sent_at), promotion.promoted)
            if promotion.promoted < PROMOTE_BATCH:
                break
            await self._take_turns()
        if promotion.next_due_in is None:
            return self._interval
        return max(PROMOTE_SHORTEST_SLEEP, min(self._interval, promotion.next_due_in))

    async def _take_turns(self) -> None:
        sent_at = lease_clock()
        turn = await self._repo.promote_in_turn(
            PROMOTE_BATCH,
            of_each_topic=PROMOTE_SHARE,
            after_topic=self._last_topic,
            topics_looked_at=PROMOTE_TOPICS,
        )
        self._publisher.promoted(turn.topics, _older(turn.levels, sent_at), PROMOTE_BATCH)
        self._last_topic = turn.last_topic


def _older(levels: Iterable[Level], sent_at: float) -> list[Level]:
    """The levels as they are now. Their ages are of when the statement began, which was later than this."""
    seconds = lease_clock() - sent_at
    return [level._replace(age_seconds=level.age_seconds + seconds) for level in levels]


CANCEL_BATCH = 1000
# No claim takes an expired job: the interval only decides how soon it is shown as canceled.
START_LIMIT_INTERVAL = timedelta(seconds=2)
NOT_STARTED = "not started in time, as start_within asks"


class StartLimits:
    def __init__(self, repo: PostgresJobRepo, publisher: Publisher) -> None:
        self._repo = repo
        self._publisher = publisher
        self.loop = Loop("start limits", self.tick, START_LIMIT_INTERVAL)

    async def tick(self) -> None:
        while True:
            canceled = await self._repo.cancel_unstarted(CANCEL_BATCH)
            if canceled:
                self._publisher.canceled([Cancellation(job, None) for job in canceled], NOT_STARTED)
            if len(canceled) < CANCEL_BATCH:
                return
