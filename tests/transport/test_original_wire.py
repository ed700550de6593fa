"""Workers and producers of the first contract work against this server unchanged."""

import grpc
import pytest
from google.protobuf import descriptor_pb2

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.original_contract import MESSAGES, ONEOFS, STREAMING, UNARY, OriginalClient, type_of
from tests.transport.pulse_server_under_test import ServerUnderTest

SERVICE = pb.DESCRIPTOR.services_by_name["PulseService"]


@pytest.fixture
def client(server: ServerUnderTest) -> OriginalClient:
    return OriginalClient(server.channel)


async def status_of(client: OriginalClient, job_id: str) -> str:
    return str((await client.call("GetJob", job_id=job_id)).job.status)


@each_row(
    "message, number, name, kind",
    [(message, *field) for message, fields in MESSAGES.items() for field in fields],
)
def test_field_of_the_first_contract_is_where_it_was(message: str, number: int, name: str, kind: str) -> None:
    described = descriptor_pb2.DescriptorProto()
    pb.DESCRIPTOR.message_types_by_name[message].CopyToProto(described)
    (field,) = (field for field in described.field if field.name == name)
    assert field.number == number
    assert (field.label == field.LABEL_REPEATED) is kind.endswith("*")
    assert (field.type, field.type_name) == type_of(kind.removesuffix("*"))
    oneof = described.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    assert oneof == ONEOFS.get((message, name))


@each_row("method", UNARY + STREAMING)
def test_call_of_the_first_contract_has_its_name_and_shape(method: str) -> None:
    assert SERVICE.full_name == "pulse.v1.PulseService"
    described = SERVICE.methods_by_name[method]
    assert described.input_type.name == f"{method}Request"
    assert described.output_type.name == f"{method}Response"
    assert not described.client_streaming
    assert described.server_streaming is (method in STREAMING)


async def test_job_goes_through_its_whole_life(client: OriginalClient) -> None:
    job_id = (await client.call("SubmitJob", topic="mail", payload=b"{}", priority=5)).job_id
    assert await status_of(client, job_id) == "PENDING"
    stream = client.stream(topics=["mail"], worker_id="old")
    message = await stream.read()
    job = message.assignment
    assert (job.job_id, job.topic, job.payload) == (job_id, "mail", b"{}")
    assert (job.attempt, job.priority) == (1, 5)
    assert await status_of(client, job_id) == "RUNNING"
    beat = await client.call("Heartbeat", job_id=job_id, worker_id="old")
    assert not beat.should_stop
    await client.call("ReportResult", job_id=job_id, success=True)
    assert await status_of(client, job_id) == "COMPLETED"
    assert (await client.call("Heartbeat", job_id=job_id, worker_id="old")).should_stop
    stream.cancel()


async def test_first_message_is_an_assignment_and_each_carries_one(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    ids = await server.submit_many(5)
    stream = client.stream(topics=["mail"], worker_id="old")
    arrived = [(await stream.read()).assignment.job_id for _ in range(5)]
    assert arrived == ids
    stream.cancel()


async def test_reported_failure_is_retried_and_delivered_again(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    job_id = (await client.call("SubmitJob", topic="mail")).job_id
    stream = client.stream(topics=["mail"], worker_id="old")
    await stream.read()
    await client.call("ReportResult", job_id=job_id, success=False, error="no luck")
    assert await status_of(client, job_id) == "RETRYING"
    again = (await stream.read()).assignment
    assert (again.job_id, again.attempt) == (job_id, 2)
    # It knows nothing of confirmations, so that its attempts count as delivered when they are claimed.
    assert (await server.table.row(job_id))["delivered"]
    assert (await server.get(job_id)).last_error == "no luck"
    stream.cancel()


async def test_worker_without_a_capacity_holds_a_hundred(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    await server.submit_many(150)
    stream = client.stream(topics=["mail"], worker_id="old")
    held = [(await stream.read()).assignment.job_id for _ in range(100)]
    await server.dispatch_settles()
    assert await server.table.count("status = 'RUNNING'") == 100
    for job_id in held[:3]:
        await client.call("ReportResult", job_id=job_id, success=True)
        held.append((await stream.read()).assignment.job_id)
    assert len(set(held)) == 103
    await server.dispatch_settles()
    assert await server.table.count("status = 'RUNNING'") == 100
    stream.cancel()


async def test_repeated_success_is_taken_as_the_first(client: OriginalClient) -> None:
    job_id = (await client.call("SubmitJob", topic="mail")).job_id
    stream = client.stream(topics=["mail"], worker_id="old")
    await stream.read()
    for _ in range(2):
        await client.call("ReportResult", job_id=job_id, success=True)
    stream.cancel()


async def test_report_for_a_job_that_no_worker_runs_is_refused(client: OriginalClient) -> None:
    job_id = (await client.call("SubmitJob", topic="mail")).job_id
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.call("ReportResult", job_id=job_id, success=True)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert await status_of(client, job_id) == "PENDING"


async def test_heartbeat_of_another_worker_says_stop(client: OriginalClient) -> None:
    job_id = (await client.call("SubmitJob", topic="mail")).job_id
    stream = client.stream(topics=["mail"], worker_id="old")
    await stream.read()
    assert (await client.call("Heartbeat", job_id=job_id, worker_id="another")).should_stop
    assert not (await client.call("Heartbeat", job_id=job_id, worker_id="old")).should_stop
    stream.cancel()


async def test_canceled_job_stops_with_the_next_heartbeat_and_makes_room(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    job_id = (await client.call("SubmitJob", topic="mail")).job_id
    stream = client.stream(topics=["mail"], worker_id="old")
    await stream.read()
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    assert (await client.call("Heartbeat", job_id=job_id, worker_id="old")).should_stop
    next_id = (await client.call("SubmitJob", topic="mail")).job_id
    assert (await stream.read()).assignment.job_id == next_id
    stream.cancel()


async def test_old_and_new_workers_share_a_topic(server: ServerUnderTest, client: OriginalClient) -> None:
    stream = client.stream(topics=["mail"], worker_id="old")
    await server.submit()
    await stream.read()
    async with server.worker("new", capacity=99) as worker:
        await server.dispatch_settles()  # or a claim may be under way that knows of the old one only
        await server.submit_many(2)
        new, old = await worker.take_one(), (await stream.read()).assignment
        assert new.job_id != old.job_id
    stream.cancel()


async def test_draining_server_ends_the_stream_in_order(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    (await client.call("SubmitJob", topic="mail"))
    stream = client.stream(topics=["mail"], worker_id="old")
    await stream.read()
    await server.app.dispatch.hub.drain(server.app._settings.drain_timeout)
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK
