"""Calls that the audit counts: one entry a minute for each user, method, peer and outcome.

These are refused changes, and the submits of operators. A loop writes them: a caller that is refused a
thousand times a second costs a few statements a minute.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from pulse_server.base.loops import Loop
from pulse_server.domain.actions import MOST_IDS, Action

WRITE_INTERVAL = timedelta(seconds=2)
ENTRY_SECONDS = 60.0
# Entries that are kept in memory. Further callers are left out: the metrics count their calls.
MOST_ENTRIES = 1000


@dataclass(slots=True)
class _Entry:
    action: Action
    code: str
    sentence: str
    until: float
    unwritten: int = 0


class CountedCalls:
    def __init__(
        self,
        write: Callable[[Action, str, str, int], Awaitable[None]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`write` adds a number of calls to the entry of the action."""
        self._write = write
        self._clock = clock
        self._entries: dict[tuple[str, ...], _Entry] = {}
        self.loop = Loop("counted calls", self.flush, WRITE_INTERVAL)

    def record(self, action: Action, code: str, sentence: str = "", count: int = 1) -> None:
        """Count the call. The entry has the first call of its minute, and the topics and ids of all."""
        # By the peer alone: a caller that invents visitors would take all entries.
        key = (action.user, action.method, action.peer, code)
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= MOST_ENTRIES:
                return
            entry = _Entry(action, code, sentence, self._clock() + ENTRY_SECONDS)
            self._entries[key] = entry
        else:
            entry.action.topics = tuple(dict.fromkeys((*entry.action.topics, *action.topics)))[:MOST_IDS]
            entry.action.ids = tuple(dict.fromkeys((*entry.action.ids, *action.ids)))[:MOST_IDS]
        entry.unwritten += count

    async def flush(self) -> None:
        """Write what was counted, and forget the entries whose minute is over."""
        for key, entry in list(self._entries.items()):
            if entry.unwritten:
                count, entry.unwritten = entry.unwritten, 0
                try:
                    await self._write(entry.action, entry.code, entry.sentence, count)
                except BaseException:
                    entry.unwritten += count
                    raise
            if not entry.unwritten and self._clock() >= entry.until:
                del self._entries[key]
