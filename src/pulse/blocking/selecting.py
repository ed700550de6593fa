"""The verbs that count many jobs and act on them, batch by batch, blocking."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Unpack

from pulse.blocking.bridge import Bridge
from pulse.client.filters import JobFilter
from pulse.client.selecting import Selecting
from pulse.models.selections import Batch, JobCount


class SyncSelecting:
    """What a `SyncPulse` can do with many jobs at once. See `Selecting`."""

    _pulse: Selecting
    _bridge: Bridge

    def count_jobs(self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]) -> JobCount:
        """Count the jobs that match; without a status, those not finished. See `Pulse.count_jobs`."""
        return self._bridge.call(self._pulse.count_jobs, timeout=timeout, **which)

    def cancel_batch(
        self,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Cancel the newest jobs that match; without a status, whatever is not finished."""
        return self._bridge.call(
            self._pulse.cancel_batch, reason=reason, cursor=cursor, limit=limit, timeout=timeout, **which
        )

    def retry_batch(
        self,
        *,
        attempts: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Bring back the newest jobs that match. Status: DEAD_LETTERED or CANCELED."""
        return self._bridge.call(
            self._pulse.retry_batch, attempts=attempts, cursor=cursor, limit=limit, timeout=timeout, **which
        )

    def prioritize_batch(
        self,
        priority: int,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Give the newest jobs that match another priority; without a status, whatever is not finished."""
        return self._bridge.call(
            self._pulse.prioritize_batch,
            priority,
            reason=reason,
            cursor=cursor,
            limit=limit,
            timeout=timeout,
            **which,
        )

    def delete_batch(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Delete the newest jobs that match. Status: COMPLETED, DEAD_LETTERED or CANCELED."""
        return self._bridge.call(
            self._pulse.delete_batch, cursor=cursor, limit=limit, timeout=timeout, **which
        )

    def cancel_matching(
        self, *, reason: str = "", timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> Generator[int, None, None]:
        """Cancel all jobs that match, batch by batch. Yields how many it were so far."""
        return self._bridge.iterate(self._pulse.cancel_matching(reason=reason, timeout=timeout, **which))

    def retry_matching(
        self, *, attempts: int | None = None, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> Generator[int, None, None]:
        """Bring back all jobs that match, batch by batch. Yields how many it were so far."""
        return self._bridge.iterate(self._pulse.retry_matching(attempts=attempts, timeout=timeout, **which))

    def prioritize_matching(
        self,
        priority: int,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Generator[int, None, None]:
        """Give all jobs that match another priority, batch by batch. Yields how many it were so far."""
        return self._bridge.iterate(
            self._pulse.prioritize_matching(priority, reason=reason, timeout=timeout, **which)
        )

    def delete_matching(
        self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> Generator[int, None, None]:
        """Delete all jobs that match, batch by batch. Yields how many it were so far."""
        return self._bridge.iterate(self._pulse.delete_matching(timeout=timeout, **which))
