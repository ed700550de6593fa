"""The workers that want the same topics: they share one claim."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from pulse_server.dispatch.rooms import COMPARED, Rooms, class_of
from pulse_server.dispatch.sessions import Session
from pulse_server.repos.jobs import CLAIM_BYTES, Slots

_free = attrgetter("free")


class Group:
    """The sessions that want the same topics, and what became of their last claims."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.sessions: dict[Session, None] = {}
        self._rooms: Rooms[Session] = Rooms()
        self.is_claiming = False
        # Claims that failed in a row, and until when the group rests for it, on the loop's clock.
        self.failures = 0
        self.rests_until = 0.0

    def add(self, session: Session) -> None:
        self.sessions[session] = None
        self.file(session)

    def remove(self, session: Session) -> None:
        del self.sessions[session]
        self._rooms.remove(session)

    def file(self, session: Session) -> None:
        """The session's room may have changed."""
        self._rooms.file(session, class_of(session.free))

    @property
    def has_room(self) -> bool:
        return bool(self._rooms)

    @property
    def room_class(self) -> int:
        """About how much room there is in the worker that has the most."""
        return self._rooms.largest

    @property
    def room(self) -> int:
        """For how many jobs there is room in the worker that has the most."""
        return max((session.free for session in self._rooms.a_few()), default=0)

    def places(self, most: int) -> list[Session]:
        """Room for jobs, one entry each, dealt out in rounds, so that few jobs spread over many workers.

        In each round a worker gets a stint: one job, or as many as its handlers do in no time.
        """
        rooms = self._enough_rooms(most)
        places: list[Session] = []
        while rooms and len(places) < most:
            left = []
            for free, session in rooms:
                stint = session.stint
                places += [session] * min(free, stint)
                if free > stint:
                    left.append((free - stint, session))
            rooms = left
        return places[:most]

    def _enough_rooms(self, most: int) -> list[tuple[int, Session]]:
        """The roomiest workers, roomiest first: as many as get a job in the first round."""
        rooms: list[tuple[int, Session]] = []
        dealt = 0
        for session in self._rooms.roomiest_first(_free):
            if dealt >= most and len(rooms) >= COMPARED:
                break
            if free := session.free:
                rooms.append((free, session))
                dealt += min(free, session.stint)
        rooms.sort(key=_most_room, reverse=True)
        return rooms


def roomiest_first(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups in the order of their turns; those whose claims fail come last. Were it the order in which
    they came, those that want the same topic would get nothing for as long as the first of them can take it
    all. ADR-0037, ADR-0046"""
    return groups if len(groups) < 2 else sorted(groups, key=_turn)


def _turn(group: Group) -> tuple[bool, int]:
    return group.failures > 0, -group.room


def _most_room(room: tuple[int, Session]) -> int:
    return room[0]


def slots_for(places: Sequence[Session]) -> Slots:
    """The places as a claim asks for them."""
    sessions = list(dict.fromkeys(places))
    index = {session: number for number, session in enumerate(sessions)}
    return Slots(
        workers=[session.worker_id for session in sessions],
        confirms=[session.speaks_batches for session in sessions],
        order=[index[session] for session in places],
        most_bytes=min(CLAIM_BYTES, sum(session.free_bytes for session in sessions)),
    )
