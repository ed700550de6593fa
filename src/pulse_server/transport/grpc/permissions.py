"""Which role may call which method. A method that is not in the table is denied to all roles."""

from __future__ import annotations

from collections.abc import Iterator

from pulse_server.access.users import Role
from pulse_server.transport.grpc.boundary import SERVICE

# Orchestrators check the health of the server without a user. The response contains nothing else.
PUBLIC = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"})

# An admin may call every method. Handlers submit further jobs, and applications declare their schedules when
# they start: workers and producers may do both. Operators submit by hand.
_TABLE = """
                      operator  producer  worker  viewer

SubmitJob             yes       yes       yes     -
SubmitJobs            yes       yes       yes     -
StreamSubmits         yes       yes       yes     -
GetJob                yes       yes       yes     yes
AwaitJobs             yes       yes       yes     yes
ListJobs              yes       -         -       yes
CancelJob             yes       yes       -       -
RetryJob              yes       -         -       -
PrioritizeJob         yes       -         -       -
DeleteJob             yes       -         -       -
WhoAmI                yes       yes       yes     yes

FindJobs              yes       yes       -       yes
CountJobs             yes       -         -       yes
CancelJobs            yes       -         -       -
RetryJobs             yes       -         -       -
PrioritizeJobs        yes       -         -       -
DeleteJobs            yes       -         -       -
UndoAction            yes       -         -       -
ExportJobs            yes       -         -       yes
WatchJobs             yes       -         -       yes
ListTopics            yes       -         -       yes
ListWorkers           yes       -         -       yes
ListServers           yes       -         -       yes
ListDeadLetterGroups  yes       -         -       yes
GetStatistics         yes       -         -       yes
SearchJobs            yes       -         -       yes
Explain               yes       -         -       yes
ListFindings          yes       -         -       yes

StreamJobs            -         -         yes     -
ReportResult          -         -         yes     -
ReportResults         -         -         yes     -
StreamReports         -         -         yes     -
Heartbeat             -         -         yes     -
Heartbeats            -         -         yes     -
Release               -         -         yes     -

CreateSchedule        yes       yes       yes     -
DeclareSchedules      yes       yes       yes     -
GetSchedule           yes       yes       yes     yes
ListSchedules         yes       yes       -       yes
PreviewSchedule       yes       yes       -       yes
ListScheduleJobs      yes       -         -       yes
ListScheduleFires     yes       -         -       yes
UpdateSchedule        yes       -         -       -
PauseSchedule         yes       -         -       -
ResumeSchedule        yes       -         -       -
FireSchedule          yes       -         -       -
DeleteSchedule        yes       -         -       -
GetSchedulerStatus    yes       -         -       yes

PauseDispatch         yes       -         -       -
ResumeDispatch        yes       -         -       -
GetDispatchStatus     yes       -         -       yes
SetWorkerState        yes       -         -       -

SetTopic              yes       -         -       -
DeclareTopics         -         -         yes     -
ListTopicSettings     yes       -         -       yes

ListLimits            yes       -         -       yes
ListLanes             yes       -         -       yes
HoldTopic             yes       -         yes     -
SetLane               yes       -         -       -

StoreSteps            -         -         yes     -
TakeSignal            -         -         yes     -
ListSteps             yes       -         yes     yes
SignalJob             yes       yes       yes     -

SubmitWorkflow        yes       yes       yes     -
AddToWorkflow         -         -         yes     -
GetWorkflow           yes       yes       yes     yes
ListWorkflows         yes       -         -       yes
ListWorkflowJobs      yes       yes       yes     yes
CancelWorkflow        yes       yes       -       -
RetryWorkflow         yes       -         -       -

ListAudit             yes       -         -       yes
"""


def _rows() -> Iterator[tuple[str, frozenset[Role]]]:
    header, *lines = (line.split() for line in _TABLE.splitlines() if line)
    columns = [Role(name) for name in header]
    for method, *marks in lines:
        if len(marks) != len(columns) or not set(marks) <= {"yes", "-"}:
            raise ValueError(f"the row of {method} in the table of permissions is not complete")
        allowed = {role for role, mark in zip(columns, marks, strict=True) if mark == "yes"}
        yield f"/{SERVICE}/{method}", frozenset({Role.ADMIN} | allowed)


ROLES_THAT_MAY: dict[str, frozenset[Role]] = {
    **dict(_rows()),
    # Returns the contract, which is not secret, but only to users.
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": frozenset(Role),
}


def may_call(role: Role, method: str) -> bool:
    """Whether a user of this role may call the method, given as /package.Service/Method."""
    return role in ROLES_THAT_MAY.get(method, ())
