"""Workers get the key from which they make the tokens of pulse.complete_job. ADR-0084"""

from __future__ import annotations

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.ids import completion_key
from tests.postgres_cluster import SECRET
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

REPLACE = """
UPDATE pulse.cluster_secret
SET previous = secret, secret = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
"""


def streamed(stub: object, worker_id: str, capacity: int = 10) -> grpc.aio.UnaryStreamCall[object, object]:
    request = pb.StreamJobsRequest(topics=["mail"], worker_id=worker_id, capacity=capacity)
    return stub.StreamJobs(request)  # type: ignore[attr-defined, no-any-return]


async def test_first_message_has_the_key_of_the_worker(server: ServerUnderTest) -> None:
    for worker_id in ("w1", "wörker"):
        stream = streamed(server.stub, worker_id)
        first = await stream.read()
        assert first.HasField("welcome")
        assert first.completion_key == pb.CompletionKey(
            worker=worker_id, key=completion_key(SECRET, worker_id)
        )
        stream.cancel()


async def test_worker_of_a_user_gets_its_id_as_the_database_has_it(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        stream = streamed(caller(server.channel, "worker"), "w1")
        key = (await stream.read()).completion_key
        stream.cancel()
    assert key == pb.CompletionKey(worker="worker:w1", key=completion_key(SECRET, "worker:w1"))


async def test_new_key_comes_with_the_next_jobs_and_once(server: ServerUnderTest) -> None:
    async with server.worker("w1") as worker:
        await server.submit()
        assert not (await worker.message()).HasField("completion_key")
        await server.table.connection.execute(REPLACE)
        secret = await server.table.connection.fetchval("SELECT secret FROM pulse.cluster_secret")
        await server.app.dispatch.gate.refresh()

        await server.submit()
        second = await worker.message()
        await server.submit()
        third = await worker.message()

    assert len(second.assignments) == len(third.assignments) == 1
    assert second.completion_key.key == completion_key(secret, "w1") != completion_key(SECRET, "w1")
    assert not third.HasField("completion_key")


async def test_worker_of_the_original_contract_gets_jobs_as_before(server: ServerUnderTest) -> None:
    stream = streamed(server.stub, "w1", capacity=0)
    await server.submit()
    message = await stream.read()
    assert [field.name for field, _ in message.ListFields()] == ["assignment"]
    stream.cancel()


async def test_server_without_the_secret_serves_and_sends_no_key(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as server:
        await server.table.connection.execute("DELETE FROM pulse.cluster_secret")
        await server.app.dispatch.gate.refresh()
        stream = streamed(server.stub, "w1")
        first = await stream.read()
        assert first.HasField("welcome")
        assert not first.HasField("completion_key")
        stream.cancel()
