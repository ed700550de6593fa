"""The sections of docs/reference/sdk.md, and the public names of `pulse` in each."""

from typing import NamedTuple


class Section(NamedTuple):
    title: str
    introduction: str
    names: tuple[str, ...]


SECTIONS = (
    Section(
        "The clients",
        "`Pulse` for asyncio, `SyncPulse` for everything else.",
        ("Pulse", "SyncPulse"),
    ),
    Section(
        "Handlers",
        "A handler is a function that serves a topic: `async def`, or a plain `def`, which runs in a thread. "
        "It takes one document (a dataclass, a msgspec Struct, a pydantic model, a TypedDict or a dict), or "
        "keyword parameters, or nothing; and a `Context` if it asks for one. It succeeds when it returns. "
        "Any exception is a failure, and the job is retried; four exceptions have a special meaning.",
        (
            *("Job", "SyncJob", "Router", "SyncRouter", "JobOptions", "Context", "SyncContext"),
            "current",
            *("Unique", "UniqueWhile", "OnConflict"),
            *("Retry", "Snooze", "Discard", "Cancelled", "TimedOut", "Suspension"),
        ),
    ),
    Section(
        "Around handlers",
        "Middleware runs around every handler; resources are opened once for each worker process. "
        "[How to use both](../how-to/middleware-and-resources.md).",
        ("JobCall", "CallNext", "Enqueue", "INJECTED", "State"),
    ),
    Section(
        "Jobs",
        "",
        (
            "JobHandle",
            "JobItem",
            "JobInfo",
            "Progress",
            "JobStatus",
            "Attempt",
            "Page",
            "FoundJobs",
            "StepInfo",
            "StepKind",
        ),
    ),
    Section(
        "Waiting for jobs",
        "`handle.result()` and `handle.wait()` wait for one job. "
        "[How to get the result of a job](../how-to/results.md).",
        ("gather", "as_completed", "SyncJobHandle"),
    ),
    Section(
        "Workflows",
        "Jobs that wait for jobs. [How to write a workflow](../how-to/workflows.md).",
        (
            *("Workflow", "SyncWorkflow", "Node", "When", "chain", "group", "Signature", "Chain", "Group"),
            *("WorkflowHandle", "SyncWorkflowHandle", "Workflows", "SyncWorkflows"),
            *("WorkflowInfo", "WorkflowStatus", "WorkflowPage", "WorkflowJob", "WorkflowJobPage"),
            *("JobOutcome", "Parents", "Parent", "RunningWorkflow"),
        ),
    ),
    Section(
        "Many jobs",
        "",
        ("JobFilter", "JobCount", "Undone", "Batch", "ExportedJobs"),
    ),
    Section(
        "Schedules",
        "When a schedule fires is one of `At`, `After`, `Every` and `Cron`.",
        (
            *(
                "At",
                "After",
                "Every",
                "Cron",
                "CatchUp",
                "Overlap",
                "Declaration",
                "Schedules",
                "SyncSchedules",
            ),
            *(
                "ScheduleInfo",
                "ScheduleOverride",
                "ScheduleFire",
                "SchedulePage",
                "FirePage",
                "SchedulerStatus",
            ),
        ),
    ),
    Section(
        "Settings of topics",
        "Limits, how jobs run, and how long finished jobs are kept. [Each setting](settings.md#the-settings-"
        "of-a-topic) with its values; [how to limit topics](../how-to/limits-tenants-and-fairness.md).",
        (
            *("Rate", "Backoff", "TopicSettings", "AllTopicSettings", "DeclaredEntries"),
            *("TopicLimits", "LaneInfo"),
        ),
    ),
    Section(
        "Overview",
        "",
        (
            *(
                "TopicInfo",
                "TopicPage",
                "Rates",
                "Latency",
                "WorkerInfo",
                "WorkerState",
                "HeldJob",
                "ServerInfo",
                "Findings",
                "Finding",
                "Statistics",
                "Minute",
                "Explanation",
            ),
            *(
                "AuditPage",
                "AuditEntry",
                "DeadLetters",
                "DeadLetterGroup",
                "Transitions",
                "Transition",
                "Verdict",
            ),
            *("DispatchStatus", "TopicPause", "Identity"),
        ),
    ),
)
