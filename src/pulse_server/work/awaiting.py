"""Awaited jobs: clients name them, and each is returned once it is finished, or found to be gone. ADR-0067

A transition that another server commits may be lost on its way. So every look is a read: of a job that was
just added, unless a worker of this server holds it; of one that a transition names; and from time to time of
all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Container, Iterable, Iterator, Set
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from pulse_server.base import bounds
from pulse_server.base.errors import ResourceExhausted, Unavailable
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.base.sharing import Budget
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.jobs.reads import job_from_row
from pulse_server.jobs.rules import TERMINAL, Job
from pulse_server.wakeups.watchers import Transition, Wakeup, WakeupLine, Watchers

# Awaited jobs of one server, about 300 bytes each, and of one caller.
MOST_AWAITED = 400_000
MOST_AWAITED_OF_ONE_CALLER = 200_000
# Jobs of one statement, and bytes of one answer.
LOOK_JOBS = 1000
ANSWER_BYTES = 1024 * 1024
# How often all jobs of a client are looked up, even without news; a third more or less.
LOOK = timedelta(seconds=30)
# Behind a pooler no news of other servers arrives.
LOOK_WITHOUT_LINE = timedelta(seconds=1)
# After the start of a client: by then the other servers know that transitions are followed here, or did not
# read it at once.
FIRST_LOOKS = (timedelta(milliseconds=200), timedelta(seconds=1))
# Between two looks because transitions were missed, and more for each job.
REPAIR_PAUSE = timedelta(seconds=1)
REPAIR_PAUSE_PER_JOB = timedelta(microseconds=100)
# After a look that the database did not answer.
RETRY_PAUSE = timedelta(seconds=1)
TICK = timedelta(milliseconds=200)
NO_TICK = timedelta(minutes=1)  # without a client

_SQL = statements("work/awaiting.sql")


class FinishedJobs(NamedTuple):
    """Finished jobs without their payloads, and the ids of the other requested jobs."""

    jobs: list[Job]
    left_over: set[str]
    """Finished, but over the byte limit."""
    unfinished: set[str]


class Answer(NamedTuple):
    """Finished jobs, and ids without a job."""

    finished: list[Job]
    missing: list[str]


class Waiter:
    """One client: the jobs that it waits for, and the jobs to look up next."""

    def __init__(
        self, registry: AwaitedJobs, held_here: Container[str], caller: str, look: timedelta
    ) -> None:
        self.caller = caller
        self.job_ids: set[str] = set()
        self._registry = registry
        self._held_here = held_here
        self._look = look
        # Dicts keep the order of arrival; a set would not.
        self._finished: dict[str, None] = {}
        self._unsure: dict[str, None] = {}
        self._is_finishing = self._is_over = False
        self._something_new = asyncio.Event()
        self._looked_at = lease_clock()
        self._first_looks = iter(FIRST_LOOKS)
        self._look_due = self._looked_at + next(self._first_looks).total_seconds()

    def add(self, job_ids: Collection[str]) -> None:
        """Wait for these jobs as well. Raises ResourceExhausted."""
        new = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in self.job_ids]
        # First, so that no transition is missed between the look and this.
        self._registry.register(self, new)
        self.job_ids.update(new)
        # A job that a worker of this server holds is not finished, and its end will be heard of here.
        self._unsure.update(dict.fromkeys(job_id for job_id in new if job_id not in self._held_here))
        self._something_new.set()

    def drop(self, job_ids: Iterable[str]) -> None:
        """Wait for these jobs no longer."""
        for job_id in job_ids:
            if job_id in self.job_ids:
                self.job_ids.discard(job_id)
                self._registry.unregister(self, job_id)
            self._finished.pop(job_id, None)
            self._unsure.pop(job_id, None)
        self._something_new.set()

    def has_finished(self, job_id: str) -> None:
        """A transition names the job as finished."""
        self._finished[job_id] = None
        self._something_new.set()

    def look_if_due(self, now: float, *, is_unsure: bool) -> bool:
        """Look all jobs up again, if it is time. Returns whether it was."""
        pause = REPAIR_PAUSE + len(self.job_ids) * REPAIR_PAUSE_PER_JOB
        is_due = now >= self._look_due or (is_unsure and now >= self._looked_at + pause.total_seconds())
        if is_due:
            self._looked_at = now
            usual = self._look * random.uniform(2 / 3, 4 / 3)
            self._look_due = now + next(self._first_looks, usual).total_seconds()
            self._look_up(self.job_ids)
            self._something_new.set()
        return is_due

    def finish(self) -> None:
        """No further jobs come: end the answers after the last one."""
        self._is_finishing = True
        self._something_new.set()

    def end(self) -> None:
        """End the answers."""
        self._is_over = True
        self._something_new.set()

    async def answers(self) -> AsyncIterator[Answer]:
        """Yield jobs as they finish. The next ones are read once these are sent."""
        while not (self._is_over or (self._is_finishing and not self.job_ids)):
            if not self._finished and not self._unsure:
                self._something_new.clear()
                await self._something_new.wait()
                continue
            answer = await self._read_next()
            if answer.finished or answer.missing:
                self.drop([*(job.id for job in answer.finished), *answer.missing])
                yield answer

    async def _read_next(self) -> Answer:
        """Look the next jobs up."""
        waiting = self._finished or self._unsure
        # Removed before the read: news that arrives during the read counts for the next read.
        asked = set(islice(waiting, LOOK_JOBS))
        for job_id in asked:
            del waiting[job_id]
        try:
            found = await self._registry.finished_jobs(asked, ANSWER_BYTES)
        except Unavailable:
            self._look_up(asked)
            await asyncio.sleep(RETRY_PAUSE.total_seconds())
            return Answer([], [])
        self._look_up(found.left_over)
        # A finished job that was retried is unfinished again.
        missing = asked - found.unfinished - found.left_over - {job.id for job in found.jobs}
        return Answer([job for job in found.jobs if job.id in self.job_ids], sorted(missing & self.job_ids))

    def _look_up(self, job_ids: Set[str]) -> None:
        self._unsure.update(dict.fromkeys(job_ids & self.job_ids))


class AwaitedJobs:
    """The jobs that the clients of this server wait for."""

    def __init__(
        self,
        database: Database,
        watchers: Watchers,
        line: WakeupLine,
        held_here: Container[str],
        *,
        look: timedelta = LOOK,
    ) -> None:
        """`held_here`: the ids of the jobs that workers of this server hold."""
        self._database = database
        self._held_here = held_here
        self._watchers = watchers
        self._look = look
        self._waiters: set[Waiter] = set()
        self._by_job: dict[str, tuple[Waiter, ...]] = {}
        self._awaited = Budget(MOST_AWAITED, of_one=MOST_AWAITED_OF_ONE_CALLER)
        self._is_unsure = False
        self.loop = Loop("awaited_jobs", self._tick, TICK)
        line.listen(self._on_wakeup)

    @contextmanager
    def waiting(self, caller: str) -> Iterator[Waiter]:
        """Wait for jobs for the length of the block."""
        if not self._waiters:
            self._watchers.follow(self)
            self.loop.nudge()
        waiter = Waiter(self, self._held_here, caller, self._look)
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            waiter.drop(list(waiter.job_ids))
            self._waiters.discard(waiter)
            if not self._waiters:
                self._watchers.unfollow(self)

    async def finished_jobs(self, job_ids: Collection[str], most_bytes: int) -> FinishedJobs:
        """Return finished jobs, up to `most_bytes`, at least one."""
        rows = await self._database.reads.fetch(
            "finished_jobs", _SQL["finished_jobs"], list(job_ids), most_bytes
        )
        left_over, unfinished = (set(map(str, rows[0][name] or ())) for name in ("left_over", "unfinished"))
        return FinishedJobs(
            [job_from_row(row) for row in rows if row["id"] is not None], left_over, unfinished
        )

    def register(self, waiter: Waiter, job_ids: Collection[str]) -> None:
        if len(waiter.job_ids) + len(job_ids) > bounds.MAX_AWAITED:
            raise ResourceExhausted(
                f"A stream waits for at most {bounds.MAX_AWAITED} jobs. Wait for fewer at a time."
            )
        if not self._awaited.take(waiter.caller, len(job_ids)):
            raise ResourceExhausted(
                "This server keeps as many awaited jobs as it can. Wait for fewer, or try again later."
            )
        for job_id in job_ids:
            self._by_job[job_id] = (*self._by_job.get(job_id, ()), waiter)

    def unregister(self, waiter: Waiter, job_id: str) -> None:
        others = tuple(other for other in self._by_job[job_id] if other is not waiter)
        if others:
            self._by_job[job_id] = others
        else:
            del self._by_job[job_id]
        self._awaited.give_back(waiter.caller)

    def offer(self, transitions: Iterable[Transition], missed: int = 0) -> None:
        """Note finished jobs. Missed transitions cause a look, since any job may be finished."""
        for transition in transitions:
            if transition.status in TERMINAL:
                for waiter in self._by_job.get(transition.job_id, ()):
                    waiter.has_finished(transition.job_id)
        if missed:
            self._is_unsure = True

    def end(self) -> None:
        """End all answers: this server stops."""
        for waiter in self._waiters:
            waiter.end()

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        if wakeup.claims_unknown:  # the line was down
            self._is_unsure = True

    async def _tick(self) -> timedelta | None:
        if not self._waiters:
            return NO_TICK
        now = lease_clock()
        looks = [waiter.look_if_due(now, is_unsure=self._is_unsure) for waiter in self._waiters]
        self._is_unsure = self._is_unsure and not all(looks)
        return None
