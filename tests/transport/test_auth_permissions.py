"""The table of roles and methods is complete, and the server enforces it."""

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from pulse_server.access.users import Role
from pulse_server.doors.boundary import SERVICE
from pulse_server.doors.callers import PUBLIC, ROLES_THAT_MAY, may_call
from tests.transport.authorized import METHODS, USERS, answer, caller
from tests.transport.pulse_server_under_test import server_under_test

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]


def names(role: Role) -> set[str]:
    """Return the methods that a user of this role may call."""
    return {method.name for method in METHODS if may_call(role, f"/{SERVICE}/{method.name}")}


def test_every_method_of_the_contract_is_in_the_table() -> None:
    for method in METHODS:
        assert f"/{SERVICE}/{method.name}" in ROLES_THAT_MAY


def test_table_names_no_method_that_does_not_exist() -> None:
    existing = {f"/{SERVICE}/{method.name}" for method in METHODS}
    existing |= {f"/{REFLECTION.full_name}/{method.name}" for method in REFLECTION.methods}
    assert existing == ROLES_THAT_MAY.keys()


def test_only_health_is_public() -> None:
    assert {f"/{HEALTH.full_name}/{method.name}" for method in HEALTH.methods} >= PUBLIC
    assert not PUBLIC & ROLES_THAT_MAY.keys()


def test_admin_may_call_everything() -> None:
    assert names(Role.ADMIN) == {method.name for method in METHODS}


def test_viewer_may_read_everything_and_do_nothing_else() -> None:
    reading = (
        "Await",
        "Count",
        "Explain",
        "Export",
        "Find",
        "Get",
        "List",
        "Preview",
        "Search",
        "Watch",
        "WhoAmI",
    )
    assert names(Role.VIEWER) == {method.name for method in METHODS if method.name.startswith(reading)}


def test_producer_submits_and_declares_schedules() -> None:
    assert names(Role.PRODUCER) == {
        "SubmitJob",
        "SubmitJobs",
        "StreamSubmits",
        "GetJob",
        "AwaitJobs",
        "WhoAmI",
        "FindJobs",
        "CancelJob",
        "SignalJob",
        "SubmitWorkflow",
        "GetWorkflow",
        "ListWorkflowJobs",
        "CancelWorkflow",
        "CreateSchedule",
        "DeclareSchedules",
        "GetSchedule",
        "ListSchedules",
        "PreviewSchedule",
    }


def test_worker_works_and_may_submit_more_work() -> None:
    assert names(Role.WORKER) == {
        "StreamJobs",
        "ReportResult",
        "ReportResults",
        "StreamReports",
        "Heartbeat",
        "Heartbeats",
        "Release",
        "DeclareTopics",
        "HoldTopic",
        "StoreSteps",
        "TakeSignal",
        "ListSteps",
        "SignalJob",
        "SubmitWorkflow",
        "AddToWorkflow",
        "GetWorkflow",
        "ListWorkflowJobs",
        "SubmitJob",
        "SubmitJobs",
        "StreamSubmits",
        "GetJob",
        "AwaitJobs",
        "WhoAmI",
        "CreateSchedule",
        "DeclareSchedules",
        "GetSchedule",
    }


def test_operator_may_do_everything_but_a_workers_calls() -> None:
    assert names(Role.ADMIN) - names(Role.OPERATOR) == {
        "StreamJobs",
        "ReportResult",
        "ReportResults",
        "StreamReports",
        "Heartbeat",
        "Heartbeats",
        "Release",
        "DeclareTopics",
        "StoreSteps",
        "TakeSignal",
        "AddToWorkflow",
    }


async def test_server_enforces_the_table_for_every_method_and_role(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        for role in Role:
            user = caller(server.channel, role.value)
            for method in METHODS:
                code, sentence = await answer(user, method.name)
                if method.name in names(role):
                    assert code in (
                        grpc.StatusCode.OK,
                        grpc.StatusCode.INVALID_ARGUMENT,
                        grpc.StatusCode.NOT_FOUND,
                    ), (role, method.name, sentence)
                else:
                    assert code is grpc.StatusCode.PERMISSION_DENIED, (role, method.name)


@pytest.mark.parametrize(
    ("user", "method", "sentence"),
    [
        (
            "viewer",
            "SubmitJob",
            "User 'viewer' has the role viewer, which may not call SubmitJob. "
            "Roles that may: admin, operator, producer, worker.",
        ),
        (
            "operator",
            "StreamJobs",
            "User 'operator' has the role operator, which may not call StreamJobs. "
            "Roles that may: admin, worker.",
        ),
    ],
)
async def test_denial_names_the_role_and_those_that_may(
    database_dsn: str, user: str, method: str, sentence: str
) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        for _ in range(2):  # checked, then remembered
            assert await answer(caller(server.channel, user), method) == (
                grpc.StatusCode.PERMISSION_DENIED,
                sentence,
            )
