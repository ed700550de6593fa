"""The handle of a job that is stored after the commit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pulse.blocking.handles import LaterHandle, SyncJobHandle
from pulse.errors import InvalidTransition
from pulse.models.jobs import JobInfo


class OnCommitHandle(LaterHandle):
    """A job that its transaction will store. After the commit it is used as the handle of any job.

    The id is known before if the job has neither a key nor `unique`: with these it may be an earlier job's.
    """

    def __init__(self, topic: str, job_id: str | None = None) -> None:
        self.topic = topic
        self._id = job_id
        self._handle: SyncJobHandle[Any] | None = None

    def _store(self, handle: SyncJobHandle[Any]) -> None:
        self._handle = handle

    @property
    def is_stored(self) -> bool:
        """True after the commit, if the server has stored the job."""
        return self._handle is not None

    @property
    def id(self) -> str:
        """The id of the job."""
        return self._id if self._id is not None else self._stored().id

    @property
    def duplicate(self) -> bool:
        """See `JobHandle.duplicate`."""
        return self._stored().duplicate

    @property
    def replaced(self) -> bool:
        """See `JobHandle.replaced`."""
        return self._stored().replaced

    @property
    def submitted_at(self) -> datetime | None:
        """See `JobHandle.submitted_at`."""
        return self._stored().submitted_at

    def result(self, timeout: timedelta | None = None) -> Any:
        """Wait until the job has completed, and return its result. See `JobHandle.result`."""
        return self._stored().result(timeout)

    def wait(self, timeout: timedelta | None = None) -> JobInfo:
        """Wait until the job has finished, and return it. See `JobHandle.wait`."""
        return self._stored().wait(timeout)

    def _stored(self) -> SyncJobHandle[Any]:
        if self._handle is None:
            raise InvalidTransition(
                f"The job for {self.topic!r} is stored after the commit of its transaction, which has not "
                "happened or was rolled back. Wait for the job after the block, or store it at once with "
                "pulse.django.enqueue_now(…)."
            )
        return self._handle

    def __repr__(self) -> str:
        state = repr(self._handle) if self._handle is not None else "after the commit"
        return f"<{type(self).__name__} {self.topic!r}: {state}>"
