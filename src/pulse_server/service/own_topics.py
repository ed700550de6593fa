"""Which topics a user serves: those of which it has a worker connected, to any server."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pulse_server.dispatch.roster import Roster
from pulse_server.domain.errors import Unavailable
from pulse_server.service.servers import Servers


class OwnTopics:
    def __init__(self, roster: Roster, servers: Servers) -> None:
        self._roster = roster
        self._servers = servers

    async def require(self, topics: Collection[str], is_own: Callable[[str], bool]) -> None:
        """Raise Unavailable if no worker with an id that is the caller's own takes one of the topics.

        Workers of this server count at once, those of others once their server has recorded them. No error
        for good: a worker that connects, or moves to another server, is about to be known.
        """
        unserved = set(topics)
        for group in self._roster.groups:
            if any(is_own(session.worker_id) for session in group.sessions):
                unserved -= group.topics
        if unserved:
            unserved -= await self._servers.topics_of(is_own)
        if unserved:
            raise Unavailable(
                f"No worker of this user that takes {min(unserved)!r} is connected, and a user governs only "
                "topics that its workers serve. Connect the worker first, or let an operator do this."
            )
