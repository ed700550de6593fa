"""The verbs that store jobs, blocking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from pulse.blocking.bridge import Bridge
from pulse.client.enqueuing import Enqueuing
from pulse.job_handle import JobHandle


class SyncEnqueuing:
    """What a `SyncPulse` can do to store jobs."""

    _pulse: Enqueuing
    _bridge: Bridge

    def enqueue(
        self,
        topic: str,
        args: object = None,
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        key: str | None = None,
        metadata: Mapping[str, str] | None = None,
        job_id: str | None = None,
        timeout: timedelta | None = None,
    ) -> JobHandle:
        """Store a job and return its handle once it is safe in the database. See `Pulse.enqueue`."""
        return self._bridge.call(
            self._pulse.enqueue,
            topic,
            args,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            key=key,
            metadata=metadata,
            job_id=job_id,
            timeout=timeout,
        )

    def enqueue_many(
        self,
        topic: str,
        items: Iterable[object],
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> list[JobHandle]:
        """Store a job for each item, in batches, and return their handles. See `Pulse.enqueue_many`."""
        return self._bridge.call(
            self._pulse.enqueue_many,
            topic,
            list(items),  # a generator of the caller's has to run in the caller's thread
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            metadata=metadata,
            timeout=timeout,
        )
