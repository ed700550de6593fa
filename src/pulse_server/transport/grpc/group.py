"""The workers that want the same topics: they share one claim."""

from __future__ import annotations

from collections.abc import Sequence

from pulse_server.repos.jobs import CLAIM_BYTES, Slots
from pulse_server.transport.grpc.session import Session


class Group:
    """The sessions that want the same topics, and whether there may be something for them."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.sessions: list[Session] = []
        self.may_have_work = True
        self.is_claiming = False
        # Claims that failed in a row, and until when the group rests for it, on the loop's clock.
        self.failures = 0
        self.rests_until = 0.0

    @property
    def has_room(self) -> bool:
        return any(session.free for session in self.sessions)

    @property
    def room(self) -> int:
        """For how many jobs there is room in the worker that has the most."""
        return max((session.free for session in self.sessions), default=0)

    def places(self, most: int) -> list[Session]:
        """Room for jobs, one entry each, dealt out in rounds, so that few jobs spread over many workers.

        In each round a worker gets a stint: one job, or as many as its handlers do in no time.
        """
        rooms = [(free, session) for session in self.sessions if (free := session.free)]
        rooms.sort(key=_most_room, reverse=True)
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


def roomiest_first(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups in the order of their turns; those whose claims fail come last. Were it the order in which
    they came, those that want the same topic would get nothing for as long as the first of them can take it
    all. ADR-0037, ADR-0050"""
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
