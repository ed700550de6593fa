"""Bounds the payloads that are leased and wait to be sent, for each worker and in all. ADR-0038"""

from __future__ import annotations

from collections.abc import Callable

# What may wait for one worker: two messages, so that the next is there when the last has left.
SESSION_BYTES = 4 * 1024 * 1024
# What may wait for all workers of this server.
ALL_BYTES = 64 * 1024 * 1024


class Backlog:
    """The bytes that wait for all workers of one server. A worker that does not read keeps its share only.

    `has_room` is called when a worker that had no room left has some again.
    """

    def __init__(self, has_room: Callable[[], object] = lambda: None) -> None:
        self._has_room = has_room
        self._waiting = 0

    @property
    def share(self) -> int:
        """What may wait for one worker now. Once half of all is taken, a worker for which something waits
        gets nothing more: slow readers leave the other half to the rest."""
        if self._waiting < ALL_BYTES // 2:
            return SESSION_BYTES
        return 1 if self._waiting < ALL_BYTES else 0

    def add(self, count: int) -> None:
        self._waiting += count

    def remove(self, count: int, *, was_full: bool) -> None:
        """These bytes left, from a worker that had its share or not."""
        is_short = self._waiting >= ALL_BYTES // 2
        self._waiting -= count
        if was_full or is_short:
            self._has_room()
