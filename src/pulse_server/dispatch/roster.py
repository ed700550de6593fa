"""Who is connected, who holds what, and what those held who left."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from pulse_server import tuning
from pulse_server.dispatch.demand import Demand
from pulse_server.dispatch.groups import Group
from pulse_server.dispatch.holders import Holders
from pulse_server.dispatch.sessions import Session
from pulse_server.domain.errors import ResourceExhausted
from pulse_server.domain.jobs import Claim, ClaimedJob
from pulse_server.domain.overview import ConnectedWorker


class Census(NamedTuple):
    """The workers of one replica: how many, how many jobs they could hold, how many they do."""

    workers: int
    capacity: int
    held: int


class Roster:
    def __init__(self, lease_ttl: timedelta) -> None:
        self._lease_ttl = lease_ttl.total_seconds()
        self._groups: dict[frozenset[str], Group] = {}
        # Of all groups together, a topic once for each group that wants it.
        self._topic_count = 0
        self.demand = Demand()
        self._by_worker: dict[str, list[Session]] = {}
        self._holders = Holders()
        self.held_jobs = self._holders.job_ids
        """The ids of all jobs that some worker holds, as they are at any moment."""
        self.take_off = self._holders.take_off
        """Strike a claim from the books. Returns the sessions that held the job by it."""
        # The last stream of a worker that left with jobs, until it comes back and says what reached it.
        self._left_with: dict[str, Session] = {}

    @property
    def groups(self) -> Collection[Group]:
        return self._groups.values()

    @property
    def sessions(self) -> list[Session]:
        return [session for group in self._groups.values() for session in group.sessions]

    def sessions_of(self, worker_id: str) -> tuple[Session, ...]:
        return tuple(self._by_worker.get(worker_id, ()))

    def enter(self, session: Session, held: Collection[Claim]) -> list[Claim]:
        """Add a worker with what it says it holds. Returns the claims that were never delivered to it.

        ResourceExhausted, and nothing has changed, if its topics are too many beside those of the others.
        """
        self._check_topics(session.topics)
        undelivered = self._replace_older(session, held) if session.speaks_batches else []
        for claim in held:
            session.held[claim.job_id] = claim.attempt or 0
            self._holders.add(claim.job_id, session)
        group = self._groups.get(session.topics)
        if group is None:
            group = self._groups[session.topics] = Group(session.topics)
            self._topic_count += len(group.topics)
        session.topics = group.topics  # one set for all of them, which may be a thousand
        self.demand.enter(session, group)
        self._by_worker.setdefault(session.worker_id, []).append(session)
        return undelivered

    def leave(self, session: Session) -> list[Claim]:
        """Strike a worker off. Returns the claims that never reached it."""
        session.is_closing = True
        group = self._groups.get(session.topics)
        if group is None or session not in group.sessions:
            return []  # it was replaced, or never entered
        self.demand.leave(session)
        others = self._by_worker[session.worker_id]
        others.remove(session)
        if not others:
            del self._by_worker[session.worker_id]
        if not group.sessions:
            del self._groups[session.topics]
            self._topic_count -= len(group.topics)
        for job_id in session.held:
            self._holders.remove(job_id, session)
        undelivered = session.take_undelivered()
        if session.held and session.speaks_batches:
            self._left_with[session.worker_id] = session
            # Past its lease the database gives the job back anyway.
            asyncio.get_running_loop().call_later(self._lease_ttl, self._forget_leaver, session)
        return undelivered

    def assign(self, session: Session, jobs: Sequence[ClaimedJob], claimed_at: float) -> None:
        session.assign(jobs, claimed_at)
        add = self._holders.add
        for job in jobs:
            add(job.id, session)

    def held_claims(self) -> frozenset[Claim]:
        return frozenset(
            Claim(job_id, session.worker_id, attempt)
            for session in self.sessions
            for job_id, attempt in session.held.items()
        )

    def not_among(self, held: Collection[Claim], worker_id: str) -> list[Claim]:
        """The claims that are on this worker's streams and that it does not say it holds."""
        named = {claim.job_id for claim in held}
        return [
            Claim(job_id, worker_id, attempt)
            for session in self.sessions_of(worker_id)
            for job_id, attempt in session.held.items()
            if session.speaks_batches and job_id not in named
        ]

    def census(self) -> Census:
        """Who is connected to this replica, and with how much."""
        sessions = self.sessions
        return Census(
            workers=len(sessions),
            capacity=sum(session.capacity for session in sessions),
            held=sum(len(session.held) for session in sessions),
        )

    def connected(self) -> list[ConnectedWorker]:
        """The workers of this replica, one by one."""
        workers: list[ConnectedWorker] = []
        for group in self._groups.values():
            topics = tuple(sorted(group.topics))  # once: its workers may be a thousand, and so may these
            workers += [
                ConnectedWorker(session.worker_id, topics, session.capacity, session.connected_at)
                for session in group.sessions
            ]
        return workers

    def _check_topics(self, topics: frozenset[str]) -> None:
        if topics not in self._groups and self._topic_count + len(topics) > tuning.TOPICS_OF_WORKERS:
            raise ResourceExhausted(
                f"The workers of this server name {self._topic_count} topics, counted once for each set of "
                f"topics; {tuning.TOPICS_OF_WORKERS} are allowed at the most. Let workers share the same "
                "topics, name fewer, or connect to another server."
            )

    def _replace_older(self, session: Session, held: Collection[Claim]) -> list[Claim]:
        """The worker is back on a new stream: what was sent on the old one but is not held never arrived."""
        undelivered: list[Claim] = []
        for older in self.sessions_of(session.worker_id):
            if older.speaks_batches:
                older.close()
                undelivered += self.leave(older)
        last = self._left_with.pop(session.worker_id, None)
        if last is None or last.run_id != session.run_id:
            # Another process under the same name: the one before may have died of what it was sent. Given
            # back, a job that kills its workers would do so for ever. ADR-0005
            return undelivered
        arrived = {claim.job_id for claim in held}
        return undelivered + [
            Claim(job_id, session.worker_id, attempt)
            for job_id, attempt in last.held.items()
            if job_id not in arrived
        ]

    def _forget_leaver(self, session: Session) -> None:
        if self._left_with.get(session.worker_id) is session:
            del self._left_with[session.worker_id]
