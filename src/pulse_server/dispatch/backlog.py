"""The backlog: the payloads that are leased to workers of this server and not sent yet."""

from __future__ import annotations

from collections.abc import Callable

# Payloads waiting for one worker: two messages, so that the next is ready when the last has left.
SESSION_BYTES = 4 * 1024 * 1024
# Payloads waiting for all workers of this server.
ALL_BYTES = 64 * 1024 * 1024


class Backlog:
    """Bounds the payloads that are leased and wait to be sent, per worker and in total. ADR-0038

    `shrunk` is called when a worker that had reached its share may get jobs again.
    """

    def __init__(self, shrunk: Callable[[], object]) -> None:
        self._shrunk = shrunk
        self._waiting = 0

    @property
    def share(self) -> int:
        """The bytes that may wait for one worker now. Once half of the total is used, a worker with waiting
        bytes gets nothing more: slow readers leave the other half to the rest."""
        if self._waiting < ALL_BYTES // 2:
            return SESSION_BYTES
        return 1 if self._waiting < ALL_BYTES else 0

    def add(self, count: int) -> None:
        self._waiting += count

    def remove(self, count: int, *, was_full: bool) -> None:
        """Count bytes off that were sent or dropped. `was_full`: their worker had reached its share."""
        is_short = self._waiting >= ALL_BYTES // 2
        self._waiting -= count
        if was_full or is_short:
            self._shrunk()
