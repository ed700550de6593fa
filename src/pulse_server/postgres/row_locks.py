"""Changes of jobs that skip the rows another session has locked. ADR-0042"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from time import monotonic

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Connections
from pulse_server.database.statements import Fetch, Rows

# A row that was found locked counts as locked for this long. A batch with such rows locks its free
# rows first instead of waiting, which costs a few round trips.
LOCK_REMEMBERED = timedelta(seconds=10)
# How many locked rows are remembered.
LOCKS_REMEMBERED = 10_000

log = logging.getLogger(__name__)

# Statements that need a stronger lock than an update.
_LOCKS = dict.fromkeys(("delete_jobs", "complete_jobs"), "lock_deletable_jobs")


async def leave_it(_fetch: Fetch) -> Rows:
    """Skip the statement: its rows may have changed once the lock is gone."""
    raise Unavailable("Another session has locked the table. Try again.")


class RowLocks:
    """Sends a statement unchanged. If it meets a lock, sends it again for the free rows only.

    Every statement takes the ids of its jobs as $1. The caller looks up the jobs that the result
    lacks: their rows were locked, or the statement's own rule left them out.
    """

    def __init__(self, statements: Mapping[str, str], clock: Callable[[], float] = monotonic) -> None:
        self._statements = statements
        self._clock = clock
        # By id, until when the row is taken to be locked; the earliest comes first.
        self._locked: dict[object, float] = {}

    async def fetch(
        self,
        connections: Connections,
        name: str,
        job_ids: Sequence[object],
        *args: object,
        encode_ids: Callable[[Sequence[object]], object] = lambda ids: ids,
    ) -> Rows:
        """Run the statement of this name on the jobs whose rows can be locked without a long wait.

        `encode_ids` returns the ids in the statement's format. The ids of locked rows are None.
        """

        async def on_free_rows(fetch: Fetch) -> Rows:
            free = await self._lock_free(fetch, name, job_ids)
            # None replaces a locked id: the other ids keep their places in the statement's arrays.
            named = [job_id if job_id in free else None for job_id in job_ids]
            return await fetch(self._statements[name], encode_ids(named), *args)

        if self._locked and self._names_a_locked_row(job_ids):
            return await connections.transact(name, on_free_rows)
        return await connections.fetch(
            name, self._statements[name], encode_ids(job_ids), *args, if_locked=on_free_rows
        )

    async def _lock_free(self, fetch: Fetch, name: str, job_ids: Sequence[object]) -> set[str]:
        """Lock the rows that no other session has locked. Returns their ids."""
        rows = await fetch(self._statements[_LOCKS.get(name, "lock_free_jobs")], job_ids)
        free = {str(row["id"]) for row in rows}
        self._remember(name, [job_id for job_id in job_ids if job_id not in free], free)
        return free

    def _names_a_locked_row(self, job_ids: Sequence[object]) -> bool:
        now = self._clock()
        while self._locked and next(iter(self._locked.values())) <= now:
            del self._locked[next(iter(self._locked))]
        return not self._locked.keys().isdisjoint(job_ids)

    def _remember(self, name: str, locked: Sequence[object], free: set[str]) -> None:
        new = [job_id for job_id in locked if job_id not in self._locked]
        if new:
            log.warning("rows_locked", extra={"statement": name, "jobs": len(new), "job_id": new[0]})
        for job_id in self._locked.keys() & free:
            del self._locked[job_id]
        forgotten_at = self._clock() + LOCK_REMEMBERED.total_seconds()
        for job_id in locked[:LOCKS_REMEMBERED]:
            self._locked.pop(job_id, None)  # to the end
            self._locked[job_id] = forgotten_at
        while len(self._locked) > LOCKS_REMEMBERED:
            del self._locked[next(iter(self._locked))]
