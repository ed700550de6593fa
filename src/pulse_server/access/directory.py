"""The current users, and the callbacks for their changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pulse_server.access.users import User

log = logging.getLogger(__name__)


class Directory:
    def __init__(self, users: Iterable[User]) -> None:
        self._users: dict[str, User] = {}
        self._listeners: list[Callable[[], None]] = []
        self.highest_cost = 0
        """The work factor of the costliest hash; 0 if every password is plain."""
        self._take(users)

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a callback for changes of the users."""
        self._listeners.append(listener)

    def replace(self, users: Iterable[User]) -> None:
        """Replace the users."""
        before = self._users
        self._take(users)
        if self._users == before:
            return
        both = before.keys() & self._users.keys()
        log.info(
            "users_changed",
            extra={
                "added": sorted(self._users.keys() - before.keys()),
                "removed": sorted(before.keys() - self._users.keys()),
                "changed": sorted(name for name in both if before[name] != self._users[name]),
            },
        )
        for listener in self._listeners:
            listener()

    def _take(self, users: Iterable[User]) -> None:
        self._users = {user.name: user for user in users}
        costs = {user.bcrypt_cost for user in self._users.values() if user.has_hash}
        self.highest_cost = max(costs, default=0)
        if len(costs) > 1:
            log.warning(
                "bcrypt_costs_differ",
                extra={
                    "costs": sorted(costs),
                    "hint": "The time that a wrong password takes distinguishes such users from unknown "
                    "ones. Hash all passwords with one cost.",
                },
            )
