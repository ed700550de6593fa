"""pulse: background jobs with Postgres as the only infrastructure.

    import pulse

    p = pulse.Pulse("localhost:50051")

    @p.job("send-email")
    async def send_email(to: str, subject: str = "Hello") -> None: ...

    p.cron("send-email", "0 9 * * 1-5", {"to": "a@b.c"}, tz="Europe/Paris")

    await send_email.enqueue("a@b.c")
    await p.run()

`SyncPulse` has the same verbs, blocking.
"""

from pulse import quiet  # noqa: F401 - before everything that imports grpc
from pulse.client import Pulse
from pulse.context import Context, current
from pulse.declarations import Declaration
from pulse.dispatch import DispatchStatus, TopicPause
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
from pulse.identity import Identity
from pulse.jobs import Job, SyncJob
from pulse.models import Attempt, JobHandle, JobInfo, JobStatus, Page
from pulse.outcomes import Cancelled, Discard, Retry
from pulse.overview import (
    Batch,
    DeadLetterGroup,
    DeadLetters,
    HeldJob,
    JobCount,
    Latency,
    Minute,
    Rates,
    ServerInfo,
    Statistics,
    TopicInfo,
    Transition,
    Transitions,
    WorkerInfo,
)
from pulse.schedule_models import (
    CatchUp,
    FirePage,
    ScheduleFire,
    ScheduleInfo,
    SchedulePage,
    SchedulerStatus,
)
from pulse.schedules import Schedules
from pulse.selecting import JobFilter
from pulse.specs import After, At, Cron, Every
from pulse.sync import SyncPulse
from pulse.sync_schedules import SyncSchedules

__all__ = [
    "After",
    "AlreadyExists",
    "At",
    "Attempt",
    "Batch",
    "Cancelled",
    "CatchUp",
    "ClientClosed",
    "Context",
    "Cron",
    "DeadLetterGroup",
    "DeadLetters",
    "DeadlineExceeded",
    "Declaration",
    "Discard",
    "DispatchStatus",
    "Every",
    "FirePage",
    "HeldJob",
    "Identity",
    "InternalError",
    "InvalidArgument",
    "InvalidHandler",
    "InvalidTransition",
    "Job",
    "JobCount",
    "JobFilter",
    "JobHandle",
    "JobInfo",
    "JobStatus",
    "Latency",
    "Minute",
    "NotFound",
    "Page",
    "PartialFailure",
    "PermissionDenied",
    "Pulse",
    "PulseError",
    "Rates",
    "ResourceExhausted",
    "Retry",
    "ScheduleFire",
    "ScheduleInfo",
    "SchedulePage",
    "SchedulerStatus",
    "Schedules",
    "ServerInfo",
    "Statistics",
    "SyncJob",
    "SyncPulse",
    "SyncSchedules",
    "TopicInfo",
    "TopicPause",
    "Transition",
    "Transitions",
    "Unauthenticated",
    "Unavailable",
    "WorkerInfo",
    "current",
]
