"""The roster: the workers that are connected to this server, their jobs, and the topics that they want.

A submit needs a worker that waits for its topic, and dispatch needs the group that claims next, among a
thousand workers with a thousand topic sets. `Demand` looks at all of them for neither: sessions record when
their free slots may have changed, and only those are ranked again before the next question is answered.
docs/figures.md#free-slots-by-topic
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from pulse_server.base.errors import ResourceExhausted
from pulse_server.dispatch.floors import Floors
from pulse_server.dispatch.limited import LimitedTopics
from pulse_server.dispatch.rules import ConnectedWorker, DispatchState
from pulse_server.dispatch.workers import BURST_MOST, COMPARED, Backlog, Group, Holders, Ranking, Session
from pulse_server.jobs.rules import Claim, ClaimedJob, Level
from pulse_server.wakeups.watchers import Wakeup, WakeupLine

# Topics of all connected workers, counted once for each set of topics: some 1.2 kB each (docs/adr/0038).
TOPICS_OF_WORKERS = 150_000

_free = attrgetter("free")


class Topic:
    """One topic that connected workers want. `groups` ranks its groups with free slots."""

    __slots__ = ("groups", "may_have_work", "wanted_by")

    def __init__(self) -> None:
        self.wanted_by = 0
        self.groups: Ranking[Group] = Ranking()
        self.may_have_work = False


class Demand:
    def __init__(self, limited: LimitedTopics) -> None:
        self._limited = limited
        # Sessions whose free slots may have changed. They add themselves.
        self.changed: set[Session] = set()
        self._groups: dict[frozenset[str], Group] = {}
        # Of all groups together, a topic once for each group that wants it.
        self._topic_count = 0
        self._topics: dict[str, Topic] = {}
        self.was_wanted: dict[str, datetime | None] = {}
        """Topics that a worker wanted since this server started, unless there were too many, with the time
        when the last such worker left. None: one is connected."""
        self._group_of: dict[Session, Group] = {}
        self._rank: dict[Group, int] = {}
        # Topics that may have work, and a group with free slots for it, in the order in which they came.
        self._due: dict[str, None] = {}
        self._with_work: set[str] = set()

    # --- sessions

    @property
    def groups(self) -> Collection[Group]:
        return self._groups.values()

    def check_topics(self, topics: frozenset[str]) -> None:
        """Raise ResourceExhausted if the topics exceed the limit on topics of all workers."""
        if topics not in self._groups and self._topic_count + len(topics) > TOPICS_OF_WORKERS:
            raise ResourceExhausted(
                f"The workers of this server name {self._topic_count} topics, counted once for each set of "
                f"topics; {TOPICS_OF_WORKERS} are allowed at the most. Let workers share the same "
                "topics, name fewer, or connect to another server."
            )

    def add(self, session: Session) -> None:
        """Add a worker. Its topics count as having work until a claim finds none."""
        group = self._groups.get(session.topics)
        if group is None:
            group = self._groups[session.topics] = Group(session.topics)
            self._topic_count += len(group.topics)
            self._rank[group] = 0
            for name in group.topics:
                self._add_topic(name)
        session.topics = group.topics  # one set for all of them, which may be a thousand
        group.add(session)
        self._group_of[session] = group
        session.record_changes_in(self.changed)
        self.changed.add(session)
        self.add_work(group.topics)

    def remove(self, session: Session) -> bool:
        """Remove a worker. False: it was replaced, or never added."""
        group = self._group_of.pop(session, None)
        if group is None:
            return False
        self.changed.discard(session)
        group.remove(session)
        self._rank_again(group)
        if not group.sessions:
            del self._rank[group]
            del self._groups[group.topics]
            self._topic_count -= len(group.topics)
            now = datetime.now(UTC)
            for name in group.topics:
                self._remove_topic(name, now)
        return True

    def is_wanted(self, name: str) -> bool:
        """Whether a connected worker takes the topic."""
        return name in self._topics

    def may_wait(self, name: str, topics: Collection[str]) -> bool:
        """Whether jobs of the topic may wait in a worker of `topics` until it can run them."""
        return name not in self._limited or self._limited.runs_ahead(frozenset(topics))

    def _add_topic(self, name: str) -> None:
        if len(self.was_wanted) >= TOPICS_OF_WORKERS:
            self.was_wanted = dict.fromkeys(self._topics)
        self.was_wanted[name] = None
        topic = self._topics.setdefault(name, Topic())
        topic.wanted_by += 1
        if topic.wanted_by == 2:  # the rank of the first one was not kept up to date before
            for group in topic.groups.best_few():
                topic.groups.put(group, self._rank[group])

    def _remove_topic(self, name: str, now: datetime) -> None:
        topic = self._topics[name]
        topic.wanted_by -= 1
        if not topic.wanted_by:
            del self._topics[name]
            self.was_wanted[name] = now
            self._due.pop(name, None)
            self._with_work.discard(name)

    # --- work

    def add_work(self, names: Iterable[str] | None) -> None:
        """Mark the topics as possibly having jobs; None: all topics."""
        for name in list(self._topics) if names is None else names:
            topic = self._topics.get(name)
            if topic is not None and not topic.may_have_work:
                topic.may_have_work = True
                self._with_work.add(name)
                if topic.groups:
                    self._due[name] = None

    def clear_work(self, names: Iterable[str]) -> None:
        """Unmark the topics: a claim is about to show their jobs, or they are paused."""
        for name in names:
            topic = self._topics.get(name)
            if topic is not None and topic.may_have_work:
                topic.may_have_work = False
                self._with_work.discard(name)
                self._due.pop(name, None)

    def has_work_for(self, group: Group) -> bool:
        return not self._with_work.isdisjoint(group.topics)

    def limited_turn(self, group: Group) -> Sequence[str]:
        """Limited topics to claim next for this group; empty when it is the plain topics' turn."""
        if not self._limited or not (group.has_slots_that_run or self._limited.runs_ahead(group.topics)):
            return ()
        return self._limited.next_turn(group.topics, group.topics & self._with_work)

    # --- questions

    def due(self) -> Collection[str]:
        """The topics that may have work and a worker with free slots."""
        self._update()
        return self._due.keys()

    def topics_with_slots(self) -> Collection[str]:
        """The topics for which a worker has a free slot."""
        self._update()
        return [name for name, topic in self._topics.items() if topic.groups]

    def topics_without_slots(self) -> Collection[str]:
        """The topics whose workers are all busy."""
        self._update()
        return [name for name, topic in self._topics.items() if not topic.groups]

    def has_slots_for(self, name: str) -> bool:
        return self.count_slots_for(name, 1) > 0

    def count_slots_for(self, name: str, most: int) -> int:
        """Count the free slots for jobs of the topic, up to `most`."""
        self._update()
        topic = self._topics.get(name)
        if topic is None or not topic.groups:
            return 0
        is_limited = name in self._limited  # workers of other servers may start its jobs at once
        if most == 1 and not is_limited:
            return 1
        free = 0
        for group in self.best_first(name):
            free += group.count_slots(most - free, that_run=is_limited)
            if free >= most:
                break
        return free

    def may_run_ahead(self, names: Collection[str]) -> bool:
        """Whether jobs of at least one of the limited topics may be claimed to wait in a worker."""
        return bool(self._limited) and any(
            self._limited.runs_ahead(group.topics)
            for name in self._limited.among(names)
            for group in self.best_first(name)
        )

    def groups_with_slots(self) -> list[Group]:
        self._update()
        return [group for group, rank in self._rank.items() if rank]

    def best_first(self, name: str) -> Iterator[Group]:
        """The groups with free slots for a topic. Nothing may change during the iteration."""
        self._update()
        topic = self._topics.get(name)
        return iter(()) if topic is None else topic.groups.best_first(_free)

    def idle_first(self, name: str) -> Iterator[Group]:
        """The groups of `best_first` without known work. Ends after too many groups with work."""
        topic = self._topics.get(name)
        passed_over = 0
        if topic is None or topic.may_have_work:
            return
        for group in self.best_first(name):
            if not self.has_work_for(group):
                yield group
            elif (passed_over := passed_over + 1) == COMPARED:
                return

    def next_due(self, names: Iterable[str], may_claim: Callable[[Group], bool]) -> list[Group]:
        """The best group that may claim for each of the first few topics that have one."""
        found: dict[Group, None] = {}
        refused: set[Group] = set()
        topics = 0
        for name in names:
            topic = self._topics.get(name)
            only = topic.groups.only if topic is not None else None
            if only is not None and (only in refused or not self._permits(name, only)):
                continue  # asked before: a group may want a thousand topics
            group = self._best_group(name, may_claim)
            if group is not None:
                found[group] = None
                if (topics := topics + 1) == COMPARED:
                    break
            elif only is not None:
                refused.add(only)
        return list(found)

    def _best_group(self, name: str, may_claim: Callable[[Group], bool]) -> Group | None:
        """The best group that may claim the topic. Of a limited one a group that would start jobs at once."""
        groups = (group for group in self.best_first(name) if may_claim(group) and self._permits(name, group))
        if name not in self._limited:
            return next(groups, None)
        waiting: Group | None = None
        for group in groups:
            if group.has_slots_that_run:
                return group
            waiting = waiting or group
        return waiting

    def _permits(self, name: str, group: Group) -> bool:
        return self._limited.permits(name, group.topics, may_run=group.has_slots_that_run)

    def move_to_end(self, group: Group, names: Iterable[str]) -> None:
        """The group was chosen for these topics: others of its rank come first the next time."""
        for name in names:
            topic = self._topics.get(name)
            if topic is not None:
                topic.groups.move_to_end(group)

    # --- ranks

    def look_again(self, sessions: Iterable[Session]) -> None:
        """Rank the sessions again: their free slots may have changed without a record of it."""
        self.changed.update(session for session in sessions if session in self._group_of)

    def _update(self) -> None:
        while self.changed:
            session = self.changed.pop()
            group = self._group_of.get(session)
            if group is not None:
                group.rank_again(session)
                self._rank_again(group)

    def _rank_again(self, group: Group) -> None:
        rank, before = group.rank, self._rank[group]
        if rank == before:
            return
        self._rank[group] = rank
        # The only group of a topic needs no exact rank there, only whether it has slots. A worker of a
        # thousand topics changes its rank with every message.
        has_slots_as_before = rank and before
        for name in group.topics:
            topic = self._topics[name]
            if has_slots_as_before and topic.wanted_by == 1:
                continue
            topic.groups.put(group, rank)
            if not topic.groups:
                self._due.pop(name, None)
            elif topic.may_have_work:
                self._due.setdefault(name)


# Few jobs are spread over the workers, one each. Very fast handlers are an exception: a message per
# job would cost more than running all jobs. Jobs that take this long together go to one worker
# (docs/figures.md#dealing-jobs-to-workers).
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
            # they were released, a job that kills its workers would do so forever.
            # docs/figures.md#undelivered-work
            return undelivered
        arrived = {claim.job_id for claim in held}
        return undelivered + [claim for claim in last.held.values() if claim.job_id not in arrived]

    def _forget_disconnected(self, session: Session) -> None:
        if self._disconnected.get(session.worker_id) is session:
            del self._disconnected[session.worker_id]
