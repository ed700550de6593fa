"""Why jobs do not run: the facts of the database and of the workers of all servers, explained.

The workers and their jobs are cached for a second: concurrent callers share one query.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import nlargest, nsmallest
from typing import Any

from pulse_server.base.errors import JobNotFound
from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import TOPICS_SAMPLE_AGE, Sample
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import CLOSING, FROZEN, UNREAD, ConnectedWorker
from pulse_server.domain.explanations import explain_job, explain_topic, waits_in_line
from pulse_server.domain.job_facts import Ahead, Explanation, JobFacts, TopicWorkers
from pulse_server.reads.servers import SERVERS_INTERVAL, Servers
from pulse_server.settings import Settings
from pulse_server.topics.rules import similar_topic

# Jobs that are counted before a job.
MOST_AHEAD = 1000
# The same within lanes, for all asked jobs together.
MOST_AHEAD_IN_LANES = 5000
# Topics of the same workers whose jobs are counted, and how many jobs of all of them are read.
MOST_TOPICS_AHEAD = 50
MOST_READ_AHEAD = 2000
# Queries for the jobs that are ahead, in one call: those that explain the most jobs. The rest are explained
# without a count.
MOST_LOOKS_AHEAD = 8

_SQL = statements("explain.sql")
_IDS = frozenset({"id", "lane_runs", "first_in_order"})


@dataclass(frozen=True, slots=True)
class _Crew:
    """The connected workers of all servers, and how many jobs of each topic each worker holds."""

    workers: Sequence[ConnectedWorker]
    held: Mapping[str, Mapping[str, int]]
    servers: int
    mustered_at: float

    def that_take(self, topic: str) -> list[ConnectedWorker]:
        # Workers with the same topics have the same tuple: each is looked at once. It is sorted.
        takes: dict[int, bool] = {}
        for worker in self.workers:
            if (key := id(worker.topics)) not in takes:
                place = bisect_left(worker.topics, topic)
                takes[key] = worker.topics[place : place + 1] == (topic,)
        return [worker for worker in self.workers if takes[id(worker.topics)]]

    def with_unlisted_topics(self) -> int:
        return sum(1 for worker in self.workers if worker.topics_left_out)

    def topics(self) -> Iterator[str]:
        for topics in {id(worker.topics): worker.topics for worker in self.workers}.values():
            yield from topics


class Explanations:
    def __init__(
        self,
        database: Database,
        servers: Servers,
        roster: Roster,
        settings: Settings,
        *,
        limits_pending: Callable[[str], str] = lambda _topic: "",
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._database = database
        self._servers = servers
        self._roster = roster
        self._limits_pending = limits_pending
        self._lease = settings.lease_ttl
        self._heartbeat = settings.heartbeat_interval
        self._clock = clock
        self._crew = Sample(self._muster, clock, to_its_end=True)

    async def of_jobs(self, job_ids: Sequence[str]) -> list[Explanation]:
        """Explain these jobs, in this order. Deleted jobs are left out; a single one is NotFound."""
        wanted = list(dict.fromkeys(job_ids))
        facts = {job.id: job for job in await self.explain_jobs(wanted, None)}
        if not facts and len(wanted) == 1:
            raise JobNotFound(wanted[0])
        jobs = [facts[job_id] for job_id in wanted if job_id in facts]
        return [
            explanation
            if job.finished_at is not None or job.status == "RUNNING"
            else self._with_pending(explanation, job.topic, "The limits of its topic")
            for job, (explanation, _) in zip(jobs, await self._explain(jobs), strict=True)
        ]

    async def of_topic(self, topic: str) -> Explanation:
        """Explain why the topic starts no jobs, by its next job."""
        (facts,) = await self.explain_jobs([], topic)
        ((explanation, workers),) = await self._explain([facts])
        found = explain_topic(facts, workers, explanation if facts.id else None)
        return self._with_pending(found, topic, "The limits of the topic")

    def _with_pending(self, explanation: Explanation, topic: str, what: str) -> Explanation:
        """Add that the last change of limits is not in force yet: by it the job may wait, or not."""
        if not (pending := self._limits_pending(topic)):
            return explanation
        return replace(
            explanation, sentence=f"{explanation.sentence} {what} were changed: accepted, {pending}."
        )

    async def explain_jobs(self, job_ids: Sequence[str], topic: str | None) -> list[JobFacts]:
        """Return the facts of the stored jobs, or of a topic with its next job."""
        most = max(min(MOST_AHEAD, MOST_AHEAD_IN_LANES // max(len(job_ids), 1)), 1)
        rows = await self._fetch("explain_jobs", job_ids, topic, most)
        return [_facts(row, most) for row in rows]

    async def jobs_ahead(self, topics: Sequence[str]) -> list[tuple[str, str]]:
        """Return the id and the topic of the first jobs that workers of these topics would claim.

        The line ends after the last job that was read of a topic: the topic may have more jobs there.
        """
        of_each = min(MOST_AHEAD + 1, MOST_READ_AHEAD // len(topics))
        line: list[tuple[str, str]] = []
        counts: Counter[str] = Counter()
        for job_id, topic in await self._fetch("jobs_ahead", topics, of_each, MOST_AHEAD + 1):
            line.append((str(job_id), topic))
            counts[topic] += 1
            if counts[topic] == of_each:
                break
        return line

    async def held_by_topic(self) -> dict[str, dict[str, int]]:
        """Return the number of held jobs, by worker and topic."""
        held: dict[str, dict[str, int]] = defaultdict(dict)
        for worker_id, topic, jobs in await self._fetch("held_by_topic"):
            held[worker_id][topic] = jobs
        return held

    async def _muster(self) -> _Crew:
        began = self._clock()
        servers = await self._servers.servers()
        workers = [worker for server in servers for worker in server.workers]
        return _Crew(workers, await self.held_by_topic(), len(servers), began)

    async def _explain(self, jobs: Sequence[JobFacts]) -> list[tuple[Explanation, TopicWorkers]]:
        crew = await self._crew.get()
        connected = {worker.worker_id for worker in crew.workers}
        # A worker that has claimed a job, or extended its lease, since the crew was read may have connected
        # since.
        news = max(timedelta(seconds=self._clock() - crew.mustered_at), TOPICS_SAMPLE_AGE)
        if crew.servers > 1:
            news += SERVERS_INTERVAL
        jobs = [
            replace(job, is_connected=job.locked_by in connected or job.extended_within(news, self._lease))
            for job in jobs
        ]
        crews = {topic: crew.that_take(topic) for topic in {job.topic for job in jobs}}
        workers = {topic: self._workers(topic, crews[topic], crew, jobs[0].now) for topic in crews}
        full = [job for job in jobs if not job.laned and waits_in_line(job, workers[job.topic])]
        ahead = await self._ahead(full, crews)
        return [
            (
                explain_job(job, workers[job.topic], ahead.get(job.id), self._heartbeat, self._lease),
                workers[job.topic],
            )
            for job in jobs
        ]

    def _workers(
        self, topic: str, takers: Sequence[ConnectedWorker], crew: _Crew, now: datetime
    ) -> TopicWorkers:
        states = self._roster.switches.workers
        quiet = [
            (worker.worker_id, state)
            for worker in takers
            if (state := states.get((worker.worker_id, worker.run_id))) is not None
        ]
        takers = [worker for worker in takers if (worker.worker_id, worker.run_id) not in states]
        if not takers and quiet:
            return TopicWorkers(quiet=quiet)
        if not takers:
            left_at = self._roster.demand.was_wanted.get(topic)
            return TopicWorkers(
                left_at=min(left_at, now) if left_at else None,
                similar=similar_topic(topic, crew.topics()),
                unlisted=crew.with_unlisted_topics(),
            )
        held = {worker.worker_id: crew.held.get(worker.worker_id, {}) for worker in takers}
        running: Counter[str] = Counter()
        for jobs in held.values():
            running.update(jobs)
        distinct = {id(worker.topics): worker.topics for worker in takers}
        may_wait = {key: self._roster.demand.may_wait(topic, topics) for key, topics in distinct.items()}
        slots = [worker.slots(that_run=not may_wait[id(worker.topics)]) for worker in takers]
        taken = [sum(held[worker.worker_id].values()) for worker in takers]
        hindrances = Counter(worker.hindrance for worker in takers)
        return TopicWorkers(
            len(takers),
            sum(slots),
            sum(max(most - jobs, 0) for most, jobs in zip(slots, taken, strict=True)),
            running.most_common(3),
            frozen=hindrances[FROZEN],
            unread=hindrances[UNREAD],
            closing=hindrances[CLOSING],
            quiet=quiet,
        )

    async def _ahead(
        self, jobs: Sequence[JobFacts], crews: Mapping[str, Sequence[ConnectedWorker]]
    ) -> dict[str, Ahead]:
        """Count the jobs before each of these. Jobs whose workers take the same topics share a query."""
        lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
        unions: dict[frozenset[int], list[str]] = {}
        for topic, of_topic in _by_topic(jobs).items():
            sets = {id(worker.topics): worker.topics for worker in crews[topic]}
            if (key := frozenset(sets)) not in unions:
                unions[key] = nsmallest(MOST_TOPICS_AHEAD, set().union(*sets.values()))
            # A limited topic is claimed apart from others.
            is_limited = of_topic[0].running is not None
            others = [] if is_limited else [name for name in unions[key] if name != topic]
            lines[tuple(sorted((topic, *others[: MOST_TOPICS_AHEAD - 1])))] += [job.id for job in of_topic]
        found: dict[str, Ahead] = {}
        for topics, ids in nlargest(MOST_LOOKS_AHEAD, lines.items(), key=lambda line: len(line[1])):
            line = await self.jobs_ahead(topics)
            places = {job_id: place for place, (job_id, _) in enumerate(line)}
            behind = _ahead(line[:MOST_AHEAD], more=True)
            for job_id in ids:
                place = places.get(job_id)
                found[job_id] = behind if place is None else _ahead(line[:place], more=False)
        return found

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.reads.fetch(name, _SQL[name], *args)


def _ahead(line: Sequence[tuple[str, str]], *, more: bool) -> Ahead:
    return Ahead(len(line), more, Counter(topic for _, topic in line).most_common(3))


def _by_topic(jobs: Sequence[JobFacts]) -> dict[str, list[JobFacts]]:
    found: dict[str, list[JobFacts]] = defaultdict(list)
    for job in jobs:
        found[job.topic].append(job)
    return found


def _facts(row: Iterable[tuple[str, Any]], most: int) -> JobFacts:
    known: dict[str, Any] = {name: value for name, value in dict(row).items() if value is not None}
    for name in _IDS & known.keys():
        known[name] = str(known[name])
    known["parents"] = [tuple(json.loads(text)) for text in known.get("parents", ())]
    # One more was counted.
    ahead = known.get("ahead_in_lane", 0)
    known |= {"ahead_in_lane": min(ahead, most), "has_more_ahead_in_lane": ahead > most}
    return JobFacts(**known)
