"""The verbs that look at jobs, and act on one, blocking."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Unpack

from pulse import tuning
from pulse.blocking.bridge import Bridge
from pulse.client.filters import JobFilter
from pulse.client.operating import Operating
from pulse.models.jobs import JobInfo, Page


class SyncOperating:
    """What a `SyncPulse` can do with jobs that are stored."""

    _pulse: Operating
    _bridge: Bridge

    def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return everything about a job, its attempt history included. Raises NotFound."""
        return self._bridge.call(self._pulse.get_job, job_id, timeout=timeout)

    def list_jobs(
        self,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Page:
        """Return one page of the jobs that match, newest first, without their payloads and histories."""
        return self._bridge.call(self._pulse.list_jobs, limit=limit, cursor=cursor, timeout=timeout, **which)

    def iter_jobs(
        self,
        *,
        page_size: int = tuning.PAGE_SIZE,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Iterator[JobInfo]:
        """Yield all jobs that match, newest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = self.list_jobs(limit=page_size, cursor=cursor, timeout=timeout, **which)
            yield from page
            cursor = page.next_cursor
            if cursor is None:
                return

    def find_jobs(self, prefix: str, *, timeout: timedelta | None = None) -> list[str]:
        """Return the ids that begin like this, ten at the most; dashes may be left out."""
        return self._bridge.call(self._pulse.find_jobs, prefix, timeout=timeout)

    def cancel(self, job_id: str, reason: str = "", *, timeout: timedelta | None = None) -> JobInfo:
        """Cancel a job; a running handler is told to stop. Raises InvalidTransition if it has finished."""
        return self._bridge.call(self._pulse.cancel, job_id, reason, timeout=timeout)

    def retry(self, job_id: str, attempts: int | None = None, *, timeout: timedelta | None = None) -> JobInfo:
        """Bring back a job that was dead-lettered or cancelled, with this many further attempts."""
        return self._bridge.call(self._pulse.retry, job_id, attempts, timeout=timeout)

    def prioritize(
        self, job_id: str, priority: int, reason: str = "", *, timeout: timedelta | None = None
    ) -> JobInfo:
        """Give a job another priority. Raises InvalidTransition if it has finished.

        The server logs the reason, with who gave it.
        """
        return self._bridge.call(self._pulse.prioritize, job_id, priority, reason, timeout=timeout)

    def delete(self, job_id: str, *, timeout: timedelta | None = None) -> None:
        """Delete a finished job, with its idempotency key. Raises InvalidTransition if it is not finished."""
        self._bridge.call(self._pulse.delete, job_id, timeout=timeout)
