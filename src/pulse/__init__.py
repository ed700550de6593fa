"""pulse: background jobs with Postgres as the only infrastructure.

    import pulse

    p = pulse.Pulse("localhost:50051")

    @p.job("send-email")
    async def send_email(to: str, subject: str = "Hello") -> None: ...

    await send_email.enqueue("a@b.c")
    await p.run()

`SyncPulse` has the same verbs, blocking.
"""

from pulse.client import Pulse
from pulse.context import Context, current
from pulse.errors import (
    AlreadyExists,
    ClientClosed,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    InvalidHandler,
    InvalidTransition,
    NotFound,
    PartialFailure,
    PermissionDenied,
    PulseError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from pulse.jobs import Job, SyncJob
from pulse.models import Attempt, JobHandle, JobInfo, JobStatus, Page
from pulse.outcomes import Cancelled, Discard, Retry
from pulse.sync import SyncPulse

__all__ = [
    "AlreadyExists",
    "Attempt",
    "Cancelled",
    "ClientClosed",
    "Context",
    "DeadlineExceeded",
    "Discard",
    "InternalError",
    "InvalidArgument",
    "InvalidHandler",
    "InvalidTransition",
    "Job",
    "JobHandle",
    "JobInfo",
    "JobStatus",
    "NotFound",
    "Page",
    "PartialFailure",
    "PermissionDenied",
    "Pulse",
    "PulseError",
    "ResourceExhausted",
    "Retry",
    "SyncJob",
    "SyncPulse",
    "Unauthenticated",
    "Unavailable",
    "current",
]
