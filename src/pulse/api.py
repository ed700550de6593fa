"""The public names of `pulse`."""

from pulse.blocking.client import SyncPulse
from pulse.blocking.handles import SyncJobHandle
from pulse.blocking.job_decorator import SyncJob, SyncRouter
from pulse.blocking.verbs import SyncSchedules
from pulse.blocking.workflows import SyncWorkflow, SyncWorkflowHandle, SyncWorkflows
from pulse.client.audit import AuditEntry, AuditPage
from pulse.client.client import Pulse
from pulse.client.dispatch import DispatchStatus, TopicPause
from pulse.client.enqueue_middleware import Enqueue
from pulse.client.exports import ExportedJobs
from pulse.client.filters import JobFilter
from pulse.client.gathering import as_completed, gather
from pulse.client.job_decorator import Job
from pulse.client.options import JobItem
from pulse.client.overview import DeadLetterGroup, DeadLetters, Identity
from pulse.client.patterns import Chain, Group, Signature, chain, group
from pulse.client.router import Router
from pulse.client.schedule_declarations import Declaration
from pulse.client.selections import Batch, JobCount
from pulse.client.steps import StepInfo, StepKind
from pulse.client.stored_schedules import Schedules
from pulse.client.undo import Undone
from pulse.client.watch import Transition, Transitions
from pulse.client.workflow_drafts import Workflow
from pulse.client.workflow_handles import WorkflowHandle
from pulse.client.workflows import Workflows
from pulse.errors import (
    AlreadyCompleted,
    AlreadyExists,
    ClaimLost,
    ClientClosed,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    InvalidHandler,
    InvalidMiddleware,
    InvalidTransition,
    NotFound,
    PermissionDenied,
    PulseError,
    ResourceExhausted,
    ResourceFailed,
    SignalTimeout,
    SlotsLost,
    Unauthenticated,
    Unavailable,
)
from pulse.handlers.context import Context, current
from pulse.handlers.middleware import CallNext, JobCall
from pulse.handlers.options import JobOptions
from pulse.handlers.resources import INJECTED, State
from pulse.handlers.sync_context import SyncContext
from pulse.handlers.workflows import Parents, RunningWorkflow
from pulse.models.job_handle import (
    JobCanceled,
    JobFailed,
    JobHandle,
    PartialFailure,
    ResultGone,
    ResultTimeout,
)
from pulse.models.jobs import Attempt, FoundJobs, JobInfo, JobStatus, Page
from pulse.models.overview import (
    Explanation,
    Finding,
    Findings,
    HeldJob,
    Latency,
    Minute,
    Rates,
    ServerInfo,
    Statistics,
    TopicInfo,
    TopicPage,
    WorkerInfo,
    WorkerState,
)
from pulse.models.progress import Progress
from pulse.models.schedules import (
    CatchUp,
    FirePage,
    Overlap,
    ScheduleFire,
    ScheduleInfo,
    ScheduleOverride,
    SchedulePage,
    SchedulerStatus,
)
from pulse.models.specs import After, At, Cron, Every
from pulse.models.topics import AllTopicSettings, DeclaredEntries, LaneInfo, TopicLimits, TopicSettings
from pulse.models.unique import OnConflict, Unique, UniqueWhile
from pulse.models.verdicts import Verdict
from pulse.models.workflows import (
    JobOutcome,
    Node,
    Parent,
    When,
    WorkflowInfo,
    WorkflowJob,
    WorkflowJobPage,
    WorkflowPage,
    WorkflowStatus,
)
from pulse.outcomes import Cancelled, Discard, Retry, Snooze, Suspension, TimedOut
from pulse.topic_settings import Backoff, Rate

__all__ = [
    "INJECTED",
    "After",
    "AllTopicSettings",
    "AlreadyCompleted",
    "AlreadyExists",
    "At",
    "Attempt",
    "AuditEntry",
    "AuditPage",
    "Backoff",
    "Batch",
    "CallNext",
    "Cancelled",
    "CatchUp",
    "Chain",
    "ClaimLost",
    "ClientClosed",
    "Context",
    "Cron",
    "DeadLetterGroup",
    "DeadLetters",
    "DeadlineExceeded",
    "Declaration",
    "DeclaredEntries",
    "Discard",
    "DispatchStatus",
    "Enqueue",
    "Every",
    "Explanation",
    "ExportedJobs",
    "Finding",
    "Findings",
    "FirePage",
    "FoundJobs",
    "Group",
    "HeldJob",
    "Identity",
    "InternalError",
    "InvalidArgument",
    "InvalidHandler",
    "InvalidMiddleware",
    "InvalidTransition",
    "Job",
    "JobCall",
    "JobCanceled",
    "JobCount",
    "JobFailed",
    "JobFilter",
    "JobHandle",
    "JobInfo",
    "JobItem",
    "JobOptions",
    "JobOutcome",
    "JobStatus",
    "LaneInfo",
    "Latency",
    "Minute",
    "Node",
    "NotFound",
    "OnConflict",
    "Overlap",
    "Page",
    "Parent",
    "Parents",
    "PartialFailure",
    "PermissionDenied",
    "Progress",
    "Pulse",
    "PulseError",
    "Rate",
    "Rates",
    "ResourceExhausted",
    "ResourceFailed",
    "ResultGone",
    "ResultTimeout",
    "Retry",
    "Router",
    "RunningWorkflow",
    "ScheduleFire",
    "ScheduleInfo",
    "ScheduleOverride",
    "SchedulePage",
    "SchedulerStatus",
    "Schedules",
    "ServerInfo",
    "SignalTimeout",
    "Signature",
    "SlotsLost",
    "Snooze",
    "State",
    "Statistics",
    "StepInfo",
    "StepKind",
    "Suspension",
    "SyncContext",
    "SyncJob",
    "SyncJobHandle",
    "SyncPulse",
    "SyncRouter",
    "SyncSchedules",
    "SyncWorkflow",
    "SyncWorkflowHandle",
    "SyncWorkflows",
    "TimedOut",
    "TopicInfo",
    "TopicLimits",
    "TopicPage",
    "TopicPause",
    "TopicSettings",
    "Transition",
    "Transitions",
    "Unauthenticated",
    "Unavailable",
    "Undone",
    "Unique",
    "UniqueWhile",
    "Verdict",
    "When",
    "WorkerInfo",
    "WorkerState",
    "Workflow",
    "WorkflowHandle",
    "WorkflowInfo",
    "WorkflowJob",
    "WorkflowJobPage",
    "WorkflowPage",
    "WorkflowStatus",
    "Workflows",
    "as_completed",
    "chain",
    "current",
    "gather",
    "group",
]
