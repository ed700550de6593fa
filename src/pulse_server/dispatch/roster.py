"""The roster: the workers that are connected to this server, and the jobs that they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from pulse_server.dispatch.backlog import Backlog
from pulse_server.dispatch.demand import Demand
from pulse_server.dispatch.floors import Floors
from pulse_server.dispatch.groups import BURST_MOST, Group
from pulse_server.dispatch.limited import LimitedTopics
from pulse_server.dispatch.sessions import Holders, Session
from pulse_server.domain.dispatch import DispatchState
from pulse_server.domain.workers import ConnectedWorker
from pulse_server.jobs.rules import Claim, ClaimedJob, Level
from pulse_server.wakeups.watchers import Wakeup, WakeupLine

# Few jobs are spread over the workers, one each. Very fast handlers are an exception: a message per
# job would cost more than running all jobs. Jobs that take this long together go to one worker
# (docs/adr/0033).
BURST_SECONDS = 0.002


class Census(NamedTuple):
    """The number of workers on one server, their capacity, and the jobs they hold."""

    workers: int
    capacity: int
    held: int


class Roster:
    """`wakeup` is set whenever a claim may find something: the hub waits for it."""

    def __init__(self, lease_ttl: timedelta, line: WakeupLine) -> None:
        self._lease_ttl = lease_ttl.total_seconds()
        self._line = line
        self._by_worker: dict[str, list[Session]] = {}
        self._holders = Holders()
        self.held_jobs = self._holders.job_ids
        """The ids of all jobs that connected workers hold. The view is live."""
        # The last session of each worker that left with jobs, until it reconnects and names them.
        self._disconnected: dict[str, Session] = {}
        self.switches = DispatchState()
        """The pause switches and the states of workers, as this server last read them."""
        self.limited = LimitedTopics(self.jobs_ready)
        self.demand = Demand(self.limited)
        self.floors = Floors()
        self.wakeup = asyncio.Event()
        self.backlog = Backlog(self._backlog_shrunk)
        self._share = self.backlog.share

    # --- sessions

    @property
    def groups(self) -> Collection[Group]:
        return self.demand.groups

    @property
    def sessions(self) -> list[Session]:
        return [session for group in self.groups for session in group.sessions]

    def sessions_of(self, worker_id: str) -> tuple[Session, ...]:
        return tuple(self._by_worker.get(worker_id, ()))

    def add(self, session: Session, held: Collection[Claim]) -> list[Claim]:
        """Add a worker with the jobs that it holds. Returns the claims that were never delivered.

        Raises ResourceExhausted, and changes nothing, if all workers together name too many topics.
        """
        self.demand.check_topics(session.topics)
        undelivered = self._replace_older(session, held) if session.speaks_batches else []
        for claim in held:
            session.held[claim.job_id] = claim
            self._holders.add(claim.job_id, session)
        self.demand.add(session)
        self._by_worker.setdefault(session.worker_id, []).append(session)
        return undelivered + self._set_state(session)

    def remove(self, session: Session) -> list[Claim]:
        """Remove a worker. Returns the claims that were never sent to it."""
        session.is_closing = True
        if not self.demand.remove(session):
            return []
        others = self._by_worker[session.worker_id]
        others.remove(session)
        if not others:
            del self._by_worker[session.worker_id]
        for job_id in session.held:
            self._holders.remove(job_id, session)
        undelivered = session.take_undelivered()
        if session.held and session.speaks_batches:
            self._disconnected[session.worker_id] = session
            # Past its lease the job is reaped anyway.
            asyncio.get_running_loop().call_later(self._lease_ttl, self._forget_disconnected, session)
        return undelivered

    def resize(self, worker_id: str, capacity: int) -> None:
        """Set the worker's capacity."""
        for session in self.sessions_of(worker_id):
            if session.speaks_batches:
                session.resize(capacity)
                self.wakeup.set()

    def set_pace(self, worker_id: str, run_seconds: float) -> None:
        """Set how long the worker's handlers take on average."""
        burst = int(BURST_SECONDS / max(run_seconds, 1e-6))
        for session in self.sessions_of(worker_id):
            session.burst = max(1, min(burst, BURST_MOST))

    def set_memory(self, worker_id: str, memory_bytes: int) -> None:
        """Set how much memory the worker takes."""
        for session in self.sessions_of(worker_id):
            session.facts = session.facts._replace(memory_bytes=memory_bytes)

    def census(self) -> Census:
        sessions = self.sessions
        return Census(
            workers=len(sessions),
            capacity=sum(session.capacity for session in sessions),
            held=sum(len(session.held) for session in sessions),
        )

    def connected(self) -> list[ConnectedWorker]:
        """The workers of this server, one by one."""
        workers: list[ConnectedWorker] = []
        for group in self.groups:
            topics = tuple(sorted(group.topics))  # once: a thousand workers may share a thousand topics
            workers += [session.as_connected(topics) for session in group.sessions]
        return workers

    # --- held jobs

    def assign(self, session: Session, jobs: Sequence[ClaimedJob], claimed_at: float) -> None:
        session.assign(jobs, claimed_at)
        self._holders.add_all([job.id for job in jobs], session)

    def settle(self, claims: Iterable[Claim]) -> None:
        """Free the slots that the claims take."""
        for claim in claims:
            if self._holders.free_slot(claim):
                self.wakeup.set()

    def answered(self, worker_id: str, claims: Sequence[Claim]) -> None:
        """Free the slots of jobs that their worker reported or released, and end its probation."""
        sessions = self.sessions_of(worker_id)
        rest = self._holders.free_slots_of(sessions[0], claims) if len(sessions) == 1 else claims
        for claim in rest:
            for session in self._holders.free_slot(claim):
                session.trust()
        for session in sessions:
            session.trust()
        self.wakeup.set()

    def stop_claims(self, claims: Iterable[Claim]) -> None:
        """These claims have ended: stop their jobs in the workers that are connected here."""
        for claim in claims:
            for session in self._holders.free_slot(claim):
                session.stop_claim(claim)
                self.wakeup.set()

    def expire_claims(self, claims: Iterable[Claim]) -> None:
        """Do the same for claims whose leases expired, and put their workers on probation."""
        for claim in claims:
            for session in self._holders.free_slot(claim):
                session.put_on_probation()
                session.stop_claim(claim)
                self.wakeup.set()

    def held_among(self, claims: Iterable[Claim]) -> list[Claim]:
        """Those of the claims that workers here hold, in full."""
        return [held for claim in claims for held in self._holders.held_by(claim)]

    def recall(self, topics: frozenset[str]) -> list[Claim]:
        """Recall unstarted jobs of the topics; an empty set: of all. Returns the unsent claims."""
        return [claim for session in self.sessions for claim in self._recall(session, topics)]

    def _recall(self, session: Session, topics: frozenset[str]) -> list[Claim]:
        recalled = session.recall(topics)
        for claim in recalled:
            self._holders.remove(claim.job_id, session)
        return recalled

    def held_claims(self) -> frozenset[Claim]:
        return frozenset(claim for session in self.sessions for claim in session.held.values())

    def not_among(self, held: Collection[Claim], worker_id: str) -> list[Claim]:
        """The claims on this worker's sessions that the worker does not name."""
        named = {claim.job_id for claim in held}
        return [
            claim
            for session in self.sessions_of(worker_id)
            for claim in session.held.values()
            if session.speaks_batches and claim.job_id not in named
        ]

    # --- work

    def wake(
        self, topics: Collection[str] | None, levels: Iterable[Level] = (), jobs: int = 1
    ) -> Collection[str]:
        """Have the hub claim from these topics; None: from all.

        Returns the topics that have no free slots here for this many new jobs: other servers may have some.
        """
        self.floors.lower(topics, levels)
        self.demand.add_work(topics)
        free = {topic: self.demand.count_slots_for(topic, jobs) for topic in topics or ()}
        # Without a free slot the hub would wake for nothing; the next slot that is free wakes it.
        if topics is None or any(free.values()) or self.demand.may_run_ahead(topics):
            self.wakeup.set()
        return {topic for topic, slots in free.items() if slots < jobs}

    def jobs_ready(self, topics: Collection[str], levels: Iterable[Level] = (), jobs: int = 1) -> None:
        """Wake this server for ready jobs, and other servers if it has fewer free slots than jobs.

        `levels` has all new jobs of its topics. Topics without a level are looked at as a whole.
        `jobs` counts the new jobs of all topics: an announcement too many does no harm.
        """
        levels = tuple(levels)
        if topics and (untaken := self.wake(topics, levels, jobs)):
            left = tuple(level for level in levels if level.topic in untaken)
            self._line.announce(Wakeup(topics=frozenset(untaken), levels=left))

    def runs_ended(self, topics: Iterable[str]) -> None:
        """Runs of the topics have ended. Jobs that share a limit with them may start. ADR-0064"""
        if self.limited:
            self.jobs_ready(self.limited.sharing_with(topics))

    def jobs_released(self, topics: Collection[str], jobs: int) -> None:
        """`jobs` jobs of the topics were released unstarted."""
        self.jobs_ready(self.limited.sharing_with(topics).union(topics), jobs=jobs)

    def limits_changed(self, topics: Collection[str]) -> None:
        """Limits of the topics changed. This server has read them; other servers read them now."""
        woken = self.limited.sharing_with(topics).union(topics)
        self.wake(woken)
        self._line.announce(Wakeup(topics=frozenset(woken), gate_changed=True))

    def switch(self, state: DispatchState) -> list[Claim]:
        """Take over the pauses, limited topics and states. Returns recalled claims that were not sent.

        Wakes topics that were resumed and topics whose limits came, went or moved. A pause wakes nothing.
        """
        before, self.switches = self.switches, state
        self.limited.replace(state.limited, state.ahead)
        recalled = [claim for session in self.sessions for claim in self._set_state(session)]
        if state.has_pauses:
            recalled += self.recall(frozenset() if state.everything is not None else frozenset(state.topics))
        if before.everything is not None and state.everything is None:
            self.wake(None)
        elif changed := before.resumed_by(state) | before.limits_changed_by(state):
            self.wake(changed)
        return recalled

    def _set_state(self, session: Session) -> list[Claim]:
        """Set what an operator has ordered of the worker. Returns recalled claims that were not sent."""
        state, before = self.switches.workers.get((session.worker_id, session.run_id)), session.state
        if state == before:
            return []
        session.set_state(state)
        if state is None:
            self.wake(session.topics)
        return self._recall(session, frozenset()) if before is None else []

    def plain_topics(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics that are neither paused nor limited."""
        are_open = self.switches.open_topics(topics)
        return are_open - self.limited.among(are_open) if self.limited else are_open

    def _backlog_shrunk(self) -> None:
        """Waiting bytes were sent. The share of each worker may have changed."""
        if self._share != self.backlog.share:
            self._share = self.backlog.share
            self.demand.look_again(self.sessions)
        self.wakeup.set()

    def _replace_older(self, session: Session, held: Collection[Claim]) -> list[Claim]:
        """The worker is back on a new stream: jobs of the old one that it does not hold never arrived."""
        undelivered: list[Claim] = []
        for older in self.sessions_of(session.worker_id):
            if older.speaks_batches:
                older.close()
                undelivered += self.remove(older)
        last = self._disconnected.pop(session.worker_id, None)
        if last is None or last.run_id != session.run_id:
            # Another process with the same name: the earlier process may have died of its jobs. If
            # they were released, a job that kills its workers would do so forever. ADR-0005
            return undelivered
        arrived = {claim.job_id for claim in held}
        return undelivered + [claim for claim in last.held.values() if claim.job_id not in arrived]

    def _forget_disconnected(self, session: Session) -> None:
        if self._disconnected.get(session.worker_id) is session:
            del self._disconnected[session.worker_id]
