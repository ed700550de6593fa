"""What connected workers want and what may be there for them, by topic. ADR-0044

A submit has to find a worker that waits for its topic, and dispatch the group that is to claim next, among a
thousand workers with a thousand sets of topics. Nothing here looks at all of them: sessions say when their
room may have changed, and only these are filed anew before the next question is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter

from pulse_server.dispatch.groups import Group
from pulse_server.dispatch.rooms import COMPARED, Rooms
from pulse_server.dispatch.sessions import Session

_room = attrgetter("room")


class Topic:
    """One topic that connected workers want."""

    __slots__ = ("may_have_work", "wanted_by", "with_room")

    def __init__(self) -> None:
        self.wanted_by = 0
        self.with_room: Rooms[Group] = Rooms()
        self.may_have_work = False


class Demand:
    def __init__(self) -> None:
        # Sessions whose room may have changed. They add themselves.
        self.changed: set[Session] = set()
        self._topics: dict[str, Topic] = {}
        self._group_of: dict[Session, Group] = {}
        self._room_class: dict[Group, int] = {}
        # Topics that may have work, and a group with room for it, in the order in which they came.
        self._due: dict[str, None] = {}
        self._with_work: set[str] = set()

    # --- who is there

    def enter(self, session: Session, group: Group) -> None:
        """A worker has come. What there is for it is not known, so there may be something."""
        if not group.sessions:
            self._room_class[group] = 0
            for name in group.topics:
                self._enter_topic(name)
        group.add(session)
        self._group_of[session] = group
        session.tell_changes_to(self.changed)
        self.changed.add(session)
        self.add_work(group.topics)

    def leave(self, session: Session) -> None:
        group = self._group_of.pop(session)
        self.changed.discard(session)
        group.remove(session)
        self._file(group)
        if not group.sessions:
            del self._room_class[group]
            for name in group.topics:
                self._leave_topic(name)

    def _enter_topic(self, name: str) -> None:
        topic = self._topics.setdefault(name, Topic())
        topic.wanted_by += 1
        if topic.wanted_by == 2:  # how much room the first one has was of no interest before
            for group in topic.with_room.a_few():
                topic.with_room.file(group, self._room_class[group])

    def _leave_topic(self, name: str) -> None:
        topic = self._topics[name]
        topic.wanted_by -= 1
        if not topic.wanted_by:
            del self._topics[name]
            self._due.pop(name, None)
            self._with_work.discard(name)

    # --- what there is for them

    def add_work(self, names: Iterable[str] | None) -> None:
        """There may be jobs in these topics; in all of them if none is named."""
        for name in list(self._topics) if names is None else names:
            topic = self._topics.get(name)
            if topic is not None and not topic.may_have_work:
                topic.may_have_work = True
                self._with_work.add(name)
                if topic.with_room:
                    self._due[name] = None

    def take_work(self, names: Iterable[str]) -> None:
        """A claim will show what there is in these topics, or they are paused."""
        for name in names:
            topic = self._topics.get(name)
            if topic is not None and topic.may_have_work:
                topic.may_have_work = False
                self._with_work.discard(name)
                self._due.pop(name, None)

    def has_work_for(self, group: Group) -> bool:
        return not self._with_work.isdisjoint(group.topics)

    # --- questions

    def due(self) -> Collection[str]:
        """The topics that may have work and a worker with room for it."""
        self._update()
        return self._due.keys()

    def with_room(self) -> Collection[str]:
        """The topics for which a worker has room."""
        self._update()
        return [name for name, topic in self._topics.items() if topic.with_room]

    def has_room_for(self, name: str) -> bool:
        self._update()
        topic = self._topics.get(name)
        return topic is not None and bool(topic.with_room)

    def groups_with_room(self) -> list[Group]:
        self._update()
        return [group for group, room_class in self._room_class.items() if room_class]

    def roomiest_first(self, name: str) -> Iterator[Group]:
        """The groups that have room for a topic. Nothing may change while they are looked at."""
        self._update()
        topic = self._topics.get(name)
        return iter(()) if topic is None else topic.with_room.roomiest_first(_room)

    def idle_first(self, name: str) -> Iterator[Group]:
        """Those of them for which no work is known. None if too many in a row are about to claim."""
        topic = self._topics.get(name)
        passed_over = 0
        if topic is None or topic.may_have_work:
            return
        for group in self.roomiest_first(name):
            if not self.has_work_for(group):
                yield group
            elif (passed_over := passed_over + 1) == COMPARED:
                return

    def next_due(self, names: Iterable[str], may_claim: Callable[[Group], bool]) -> list[Group]:
        """The groups whose turn it is in these topics, the best of each; of the first few that have one."""
        found: dict[Group, None] = {}
        refused: set[Group] = set()
        topics = 0
        for name in names:
            topic = self._topics.get(name)
            only = topic.with_room.only if topic is not None else None
            if only is not None and only in refused:  # asked before: a group may want a thousand topics
                continue
            group = next(filter(may_claim, self.roomiest_first(name)), None)
            if group is None and only is not None:
                refused.add(only)
            if group is not None:
                found[group] = None
                if (topics := topics + 1) == COMPARED:
                    break
        return list(found)

    def had_a_turn(self, group: Group, names: Iterable[str]) -> None:
        """The group was chosen for these topics: others with as much room come before it the next time."""
        for name in names:
            topic = self._topics.get(name)
            if topic is not None:
                topic.with_room.had_a_turn(group)

    # --- the books

    def look_again(self, sessions: Iterable[Session]) -> None:
        """The room of these sessions may have changed without their knowing."""
        self.changed.update(session for session in sessions if session in self._group_of)

    def _update(self) -> None:
        while self.changed:
            session = self.changed.pop()
            group = self._group_of.get(session)
            if group is not None:
                group.file(session)
                self._file(group)

    def _file(self, group: Group) -> None:
        room_class, before = group.room_class, self._room_class[group]
        if room_class == before:
            return
        self._room_class[group] = room_class
        # Where it is the only group of a topic, it is of interest only whether there is room. A worker of a
        # thousand topics changes its room with every message.
        has_room_as_before = room_class and before
        for name in group.topics:
            topic = self._topics[name]
            if has_room_as_before and topic.wanted_by == 1:
                continue
            topic.with_room.file(group, room_class)
            if not topic.with_room:
                self._due.pop(name, None)
            elif topic.may_have_work:
                self._due.setdefault(name)
