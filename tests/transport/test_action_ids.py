"""Action ids: the batches of one bulk action have the same, and the response returns it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database import audit
from pulse_server.database.audit import Action
from tests.transport.pulse_server_under_test import ServerUnderTest

BULK: dict[str, Any] = {
    "CancelJobs": pb.CancelJobsRequest(filter=pb.JobFilter(topic="mail")),
    "RetryJobs": pb.RetryJobsRequest(filter=pb.JobFilter(topic="mail", status="CANCELED")),
    "PrioritizeJobs": pb.PrioritizeJobsRequest(filter=pb.JobFilter(topic="mail")),
    "DeleteJobs": pb.DeleteJobsRequest(filter=pb.JobFilter(topic="mail", status="CANCELED")),
}


@pytest.mark.parametrize("method", BULK)
async def test_bulk_action_returns_its_id(server: ServerUnderTest, method: str) -> None:
    call = getattr(server.stub, method)
    made = (await call(BULK[method])).action_id
    assert str(UUID(made)) == made

    given = type(BULK[method])()
    given.CopyFrom(BULK[method])
    given.action_id = str(uuid4())
    assert (await call(given)).action_id == given.action_id


async def test_action_id_that_is_no_uuid_is_refused(server: ServerUnderTest) -> None:
    request = pb.CancelJobsRequest(filter=pb.JobFilter(topic="mail"), action_id="mine")
    with pytest.raises(grpc.aio.AioRpcError, match="'mine' is not a valid action id") as refused:
        await server.stub.CancelJobs(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_action_is_under_way_in_its_block_only() -> None:
    action = Action("id", "CancelJobs", "ada", "operator", "10.0.0.1")
    with audit.under_way(action):
        assert audit.current() is action
    assert audit.current() is None
