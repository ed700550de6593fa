"""Why a job does not run, in a sentence: its state, and the first gate of the claim that is closed.

The facts are of the database and of the workers of all servers. The workers and their jobs are cached for a
second: concurrent callers share one query.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import nlargest, nsmallest
from typing import Any

from pulse_server.base.errors import JobNotFound
from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import TOPICS_SAMPLE_AGE, Sample
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import CLOSING, FROZEN, UNREAD, ConnectedWorker
from pulse_server.settings import Settings
from pulse_server.topics.rules import similar_topic
from pulse_server.views.gates import (
    Ahead,
    Explanation,
    JobFacts,
    TopicWorkers,
    clock,
    cut,
    ended,
    hindered,
    lane_gate,
    limit_gate,
    plural,
    span,
    topic_gate,
    unlisted,
    worker_gate,
)
from pulse_server.views.servers import SERVERS_INTERVAL, Servers

# Later due times stand for a wait without an end.
_WITHOUT_END = datetime(9000, 1, 1, tzinfo=UTC)
# A worker counts as silent once its last heartbeat is this many intervals old: one was missed.
_SILENT_HEARTBEATS = 2


def explain_job(
    job: JobFacts, workers: TopicWorkers, ahead: Ahead | None, heartbeat: timedelta, lease: timedelta
) -> Explanation:
    """`ahead` is None if it was not counted."""
    if job.finished_at is not None:
        found = _finished(job)
    elif job.status == "RUNNING":
        found = _running(job, heartbeat, lease)
    else:
        found = (
            _waiting(job)
            or topic_gate(job, workers)
            or _locked(job)
            or lane_gate(job)
            or limit_gate(job, ahead)
            or worker_gate(job, workers, ahead)
        )
        if (then := _closed_afterwards(job, workers, ahead, found)) is not None:
            found = replace(
                found,
                sentence=f"{found.sentence} {then.sentence}",
                brief=f"{found.brief}; {then.brief}",
                remedy="; ".join(filter(None, [found.remedy, then.remedy])),
                expected_at=then.expected_at,
            )
    return replace(found, job_id=job.id)


def explain_topic(topic: JobFacts, workers: TopicWorkers, next_job: Explanation | None) -> Explanation:
    """`next_job` explains the job that is next. None: no job of the topic waits."""
    gate = topic_gate(topic, workers) or limit_gate(topic)
    if gate is not None:
        return replace(
            gate,
            sentence=gate.sentence.replace("Its topic", "The topic").replace("its topic", "the topic"),
            brief=gate.brief.replace("its topic", "the topic"),
        )
    if next_job is not None and next_job.cause:
        sentence = f"Its next job is {next_job.job_id}. {next_job.sentence}"
        return replace(next_job, job_id="", sentence=sentence)
    if not workers.count:
        return unlisted(topic, workers)
    free = f"{workers.free:,} of {workers.capacity:,} slots free.{hindered(workers, topic.now)}"
    slots = f"{plural(workers.count, 'worker')} with {free}"
    if next_job is None:
        return Explanation("", f"No job of the topic waits. It has {slots}", "no job waits")
    return Explanation("", f"Nothing stops it: it has {slots}", "starts jobs")


def _closed_afterwards(
    job: JobFacts, workers: TopicWorkers, ahead: Ahead | None, found: Explanation
) -> Explanation | None:
    """The gate that stays closed beyond the wait that was found."""
    if job.held or found.cause in ("dispatch_paused", "topic_paused", "workers_quiet", "no_worker"):
        return None
    if not job.queued and (gate := topic_gate(job, workers)) is not None:
        return gate
    gate = limit_gate(job, ahead)
    # A full limit may have room by then.
    if gate is None or found.expected_at is None or gate.cause in (found.cause, "topic_limit", "pool_limit"):
        return None
    return gate if gate.expected_at is None or gate.expected_at > found.expected_at else None


def waits_in_line(job: JobFacts, workers: TopicWorkers) -> bool:
    """Whether the job waits for its turn: only full workers keep it from starting, or limits of its topic."""
    if not job.is_ready or topic_gate(job, workers) or lane_gate(job):
        return False
    return limit_gate(job) is not None or (workers.count > 0 and not workers.free)


def _finished(job: JobFacts) -> Explanation:
    assert job.finished_at is not None
    at, error = clock(job.finished_at, job.now), cut(job.last_error)
    because = f" {error}" if error else ""
    retry = f"Run it again: pulse jobs retry {job.id}"
    if job.status == "COMPLETED":
        return Explanation("finished", f"It has completed, at {at}, in attempt {job.attempts}.", "completed")
    if job.status == "CANCELED":
        return Explanation("finished", f"It was canceled at {at}.{because}", "canceled", retry)
    made = f"after {plural(job.attempts, 'attempt')}"
    return Explanation(
        "finished", f"It has been a dead letter since {at}, {made}.{because}", "dead letter", retry
    )


def _running(job: JobFacts, heartbeat: timedelta, lease: timedelta) -> Explanation:
    worker, left = job.locked_by, job.lease_until or job.now
    held, runs = "holds it", f"runs on {worker}"
    if job.started_at is not None:
        at = clock(job.started_at, job.now)
        held, runs = f"has held it since {at}", f"has been running on {worker} since {at}"
    until = max(left, job.spared_until or left)
    rest = f"recovered in {span(until - job.now)}" if until > job.now else "recovered soon"
    then = "becomes a dead letter" if job.attempts >= job.max_attempts else "is retried"
    follows = f"It {then} when its lease ends, by itself."
    if not job.is_connected:
        return Explanation(
            "worker_gone",
            f"Its worker {worker} is not connected to any server, and {held}.",
            f"worker gone, {rest}",
            follows,
            until,
        )
    silent_for = job.now - (left - lease)
    # Before the lease ends, also where the interval is long.
    if silent_for > min(_SILENT_HEARTBEATS * heartbeat, (heartbeat + lease) / 2) and job.is_row_locked:
        who, remedy = _holder(job)
        return Explanation(
            "locked",
            f"It runs on {worker}, and {who} has its row locked, as after ctx.complete. Until that ends, no "
            "heartbeat and no result is stored.",
            f"locked by {who}",
            remedy,
        )
    if silent_for > min(_SILENT_HEARTBEATS * heartbeat, (heartbeat + lease) / 2):
        return Explanation(
            "worker_silent",
            f"Its worker {worker} has sent no heartbeat for {span(silent_for)}, the attempt is past its time "
            "limit, or another session of the database has its row locked, as after ctx.complete.",
            f"worker silent, {rest}",
            follows if until > job.now else f"It {then} by itself, once its row is not locked.",
            until,
        )
    return Explanation("", f"It {runs}.", f"on {worker}")


def _waiting(job: JobFacts) -> Explanation | None:
    """The gates of promotion, and of a start that has a latest time."""
    due = job.next_run_at or job.now
    if job.held:
        return _for_jobs(job)
    if job.waits and job.status == "RETRYING" and job.waits_for is not None:
        return _suspended(job, due)
    if job.waits and due > job.now:
        rest, at = span(due - job.now), clock(due, job.now)
        if job.status != "RETRYING":
            return Explanation("delayed", f"It is delayed until {at}.", f"runs in {rest}", "", due)
        if job.snoozed is not None:
            reason = f": {cut(job.snoozed)}" if job.snoozed else ""
            sentence = f"Its handler has snoozed it until {at}{reason}"
            return Explanation("between_attempts", ended(sentence), f"snoozed for {rest}{reason}", "", due)
        error = f": {cut(job.last_error)}" if job.last_error else ""
        last = f"Attempt {job.attempts} ended" if job.attempts else "No attempt has counted yet"
        sentence = f"{last}, and the next one is due at {at}{error}"
        return Explanation("between_attempts", ended(sentence), f"runs in {rest}{error}", "", due)
    if job.waits and not job.is_row_locked:
        return Explanation("due", "It is due. A server makes it ready within a second.", "due", "", job.now)
    if not job.is_ready and job.queued and not job.is_row_locked:
        by = "" if job.start_by is None else f" {clock(job.start_by, job.now)}"
        sentence = f"It had to start by{by}, and has not. It is canceled within seconds."
        return Explanation("too_late", sentence, "too late to start")
    return None


def _locked(job: JobFacts) -> Explanation | None:
    """A claim skips a row that another session has locked."""
    if not job.is_row_locked:
        return None
    who, remedy = _holder(job)
    return Explanation(
        "locked",
        f"{who[0].upper()}{who[1:]} has its row locked. Until that ends, the job does not start, and a "
        "cancel or a new priority may be refused.",
        f"locked by {who}",
        remedy,
    )


def _holder(job: JobFacts) -> tuple[str, str]:
    """Who has locked the row, and how to end it."""
    facts = {
        "role": cut(job.holder_user, 60),
        "application": cut(job.holder_application, 60),
        "since": clock(job.holder_since, job.now) if job.holder_since is not None else "",
    }
    known = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    about = f" ({known})" if known else ""
    if job.holder_prepared:
        name = repr(cut(job.holder_prepared, 60))
        return f"the prepared transaction {name}{about}", "Commit it, or roll it back."
    return (
        f"the transaction of session {job.holder_pid}{about}",
        f"It goes on when that transaction ends. To end it: SELECT pg_terminate_backend({job.holder_pid});",
    )


def _for_jobs(job: JobFacts) -> Explanation:
    if not job.parents_left:
        sentence = "The jobs that it waited for have ended. A server decides within seconds whether it runs."
        return Explanation("waits_for_jobs", sentence, "waits for other jobs", "", job.now)
    named = [f"{cut(name, 60)} ({status})" for _, name, status in job.parents]
    more = [f"{job.parents_left - len(named):,} more"] if 0 < len(named) < job.parents_left else []
    which = f": {', '.join(named + more)}" if named else ""
    jobs = plural(job.parents_left, "job")
    first = f"pulse jobs explain {job.parents[0][0]}" if job.parents else f"pulse jobs explain {job.id}"
    return Explanation(
        "waits_for_jobs",
        f"It waits for {jobs} of its workflow{which}.",
        f"waits for {jobs}" + (f": {', '.join(named[:1])}" if len(named) == job.parents_left == 1 else ""),
        f"It runs once they have ended. Why they have not: {first}",
    )


def _suspended(job: JobFacts, due: datetime) -> Explanation:
    rest, has_end = span(due - job.now), due < _WITHOUT_END
    if not job.waits_for:
        return Explanation(
            "sleeping", f"Its handler sleeps until {clock(due, job.now)}.", f"sleeps for {rest}", "", due
        )
    names = job.waits_for.split("\n")
    words = " or ".join(cut(name, 60) for name in names)
    end = f" It goes on without it at {clock(due, job.now)}." if has_end else ""
    return Explanation(
        "waits_for_signal",
        f"Its handler waits for the signal {words}.{end}",
        f"waits for {words}" + (f", {rest} at the most" if has_end else ""),
        f"Send it: pulse jobs signal {job.id} {shlex.quote(names[0])}",
        due if has_end else None,
    )


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

_SQL = statements("views/explanations.sql")
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
