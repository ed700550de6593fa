"""Demand: the topics that connected workers want, and whether there may be work in them. ADR-0044

A submit needs a worker that waits for its topic, and dispatch needs the group that claims next, among a
thousand workers with a thousand topic sets. Nothing here looks at all of them: sessions record when their
free slots may have changed, and only those are ranked again before the next question is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter

from pulse_server.base.errors import ResourceExhausted
from pulse_server.dispatch.groups import COMPARED, Group, Ranking
from pulse_server.dispatch.limited import LimitedTopics
from pulse_server.dispatch.sessions import Session

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
