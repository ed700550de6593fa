"""The public names of the SDK, and what its import costs."""

from __future__ import annotations

import pytest

import pulse
from tests.sdk.scripts import run_script


def test_public_names_are_these() -> None:
    assert set(pulse.__all__) == {
        *(
            "Pulse",
            "SyncPulse",
            "Job",
            "SyncJob",
            "Context",
            "SyncContext",
            "current",
            "Retry",
            "Discard",
            "Cancelled",
        ),
        *("JobOptions", "JobItem", "Router", "SyncRouter", "Backoff", "Snooze", "TimedOut", "SlotsLost"),
        *("StepInfo", "StepKind", "Suspension", "SignalTimeout"),
        *("ClaimLost", "AlreadyCompleted"),
        *("JobCall", "CallNext", "Enqueue", "InvalidMiddleware", "INJECTED", "State", "ResourceFailed"),
        *(
            "JobHandle",
            "JobInfo",
            "JobStatus",
            "Attempt",
            "Page",
            "Progress",
            "JobFilter",
            "JobCount",
            "Batch",
        ),
        *(
            "TopicInfo",
            "TopicPage",
            "Rates",
            "Latency",
            "WorkerInfo",
            "WorkerState",
            "HeldJob",
            "ServerInfo",
            "Transition",
            "Transitions",
        ),
        *(
            "DeadLetters",
            "DeadLetterGroup",
            "Statistics",
            "Minute",
            "SchedulerStatus",
            "Identity",
            "Explanation",
        ),
        "Verdict",
        *(
            "SyncJobHandle",
            "gather",
            "as_completed",
            "JobFailed",
            "JobCanceled",
            "ResultTimeout",
            "ResultGone",
        ),
        *("Workflow", "Workflows", "WorkflowHandle", "WorkflowInfo", "WorkflowPage", "WorkflowStatus"),
        *("WorkflowJob", "WorkflowJobPage", "Node", "When", "JobOutcome", "Parent", "Parents"),
        *("RunningWorkflow", "Signature", "Chain", "Group", "chain", "group"),
        *("SyncWorkflow", "SyncWorkflows", "SyncWorkflowHandle"),
        *("Unique", "UniqueWhile", "OnConflict", "Overlap"),
        *("At", "After", "Every", "Cron", "CatchUp", "Declaration", "Schedules", "SyncSchedules"),
        *(
            "ScheduleInfo",
            "ScheduleOverride",
            "ScheduleFire",
            "SchedulePage",
            "FirePage",
            "DispatchStatus",
            "TopicPause",
        ),
        *("AllTopicSettings", "TopicSettings", "ExportedJobs", "AuditEntry", "AuditPage"),
        *("FoundJobs", "Finding", "Findings", "Undone"),
        *("Rate", "DeclaredEntries", "TopicLimits", "LaneInfo"),
        *(
            "PulseError",
            "InvalidArgument",
            "InvalidHandler",
            "NotFound",
            "AlreadyExists",
            "InvalidTransition",
        ),
        *("Unauthenticated", "PermissionDenied", "ResourceExhausted", "Unavailable", "DeadlineExceeded"),
        *("InternalError", "PartialFailure", "ClientClosed"),
    }
    assert all(hasattr(pulse, name) for name in pulse.__all__)


def test_import_brings_in_no_optional_package() -> None:
    printed = run_script(
        """
        import sys
        from pulse import *
        print([name for name in ("pydantic", "uvloop", "asyncpg", "uuid_utils") if name in sys.modules])
        """
    )
    assert printed.strip() == "[]"


def test_stubs_are_imported_without_the_sdk() -> None:
    """pulsed has a use for them alone."""
    printed = run_script(
        """
        import sys
        import pulse.v1.pulse_pb2, pulse.failpoints
        print(*(name for name in sys.modules if name.startswith("pulse.")))
        """
    )
    assert set(printed.split()) == {"pulse.quiet", "pulse.failpoints", "pulse.v1", "pulse.v1.pulse_pb2"}


def test_modules_are_found_without_an_import_of_their_own() -> None:
    assert run_script("import pulse; print(pulse.errors.NotFound is pulse.NotFound)").strip() == "True"


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pulse' has no attribute 'Pulze'"):
        pulse.Pulze  # type: ignore[attr-defined]  # noqa: B018
    assert set(pulse.__all__) <= set(dir(pulse))
