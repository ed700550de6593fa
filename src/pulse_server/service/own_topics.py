"""The topics that a user serves: it has a worker for them, connected to any server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.roster import Roster


class OwnTopics:
    def __init__(
        self, roster: Roster, topics_of: Callable[[Callable[[str], bool]], Awaitable[set[str]]]
    ) -> None:
        """`topics_of` returns the topics of the workers with these ids, over all servers."""
        self._roster = roster
        self._topics_of = topics_of

    async def require(self, topics: Collection[str], is_own: Callable[[str], bool]) -> None:
        """Raise Unavailable if a topic has no worker of the caller. `is_own` tests worker ids.

        Workers of this server count at once. Workers of another server count once that server has
        recorded them. The error is temporary: a worker may be connecting, or moving.
        """
        unserved = set(topics)
        for group in self._roster.groups:
            if any(is_own(session.worker_id) for session in group.sessions):
                unserved -= group.topics
        if unserved:
            unserved -= await self._topics_of(is_own)
        if unserved:
            raise Unavailable(
                f"No worker of this user that takes {min(unserved)!r} is connected, and a user limits only "
                "topics that its workers serve. Connect the worker first, or let an operator do this."
            )
