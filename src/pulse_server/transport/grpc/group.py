"""The workers that want the same topics: they share one claim."""

from __future__ import annotations

from pulse_server.repos.jobs import Slots
from pulse_server.transport.grpc.session import Session


class Group:
    """The sessions that want the same topics, and whether there may be something for them."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.sessions: list[Session] = []
        self.may_have_work = True

    @property
    def has_room(self) -> bool:
        return any(session.free for session in self.sessions)

    def slots(self, most: int) -> Slots:
        """Room for jobs, dealt out in rounds, so that few jobs spread over many workers."""
        open_sessions = sorted(
            (session for session in self.sessions if session.free), key=lambda s: s.free, reverse=True
        )
        free = [session.free for session in open_sessions]
        if len(open_sessions) == 1:
            order = [0] * min(free[0], most)
        else:
            order = []
            for room in range(free[0] if free else 0):
                order.extend(index for index, slots in enumerate(free) if slots > room)
                if len(order) >= most:
                    break
            del order[most:]
        return Slots(
            workers=[session.worker_id for session in open_sessions],
            confirms=[session.speaks_batches for session in open_sessions],
            order=order,
        )
