"""ListTopics and ListWorkers over real gRPC and Postgres, with one server and with two."""

from collections.abc import AsyncIterator

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.views.servers import SERVER_SILENT_ROUNDS, SERVERS_INTERVAL
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test

MINUTE_AGO = "UPDATE pulse.topic_minutes SET minute = minute - interval '1 minute'"


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", 0 * SECOND)
    monkeypatch.setattr(tuning, "SAMPLE_REST", 0)


@pytest.fixture
async def replicas(database_dsn: str) -> AsyncIterator[tuple[ServerUnderTest, ServerUnderTest]]:
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        yield a, b


async def topics(server: ServerUnderTest) -> dict[str, pb.TopicView]:
    response = await server.stub.ListTopics(pb.ListTopicsRequest())
    assert response.HasField("counted_at")
    assert [view.topic for view in response.topics] == sorted(view.topic for view in response.topics)
    return {view.topic: view for view in response.topics}


async def workers(server: ServerUnderTest) -> list[pb.WorkerView]:
    return list((await server.stub.ListWorkers(pb.ListWorkersRequest())).workers)


def depths(view: pb.TopicView) -> tuple[int, ...]:
    return view.ready, view.waiting, view.running, view.dead_lettered, view.canceled


async def test_depths_are_counted_by_state(server: ServerUnderTest) -> None:
    async with server.worker(capacity=5) as worker:
        await server.submit_many(5)
        done, again, dead, called_off, _held = await worker.take(5)
        await worker.complete(done, capacity=1)  # no room for more
        await worker.fail(again, after=3600 * SECOND)
        await worker.fail(dead, discard=True)
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=called_off.job_id))
        first = await server.submit("other")
        await server.submit("other")
        found = await topics(server)

    assert depths(found["mail"]) == (0, 1, 1, 1, 1)
    assert not found["mail"].HasField("oldest_ready_at")
    assert depths(found["other"]) == (2, 0, 0, 0, 0)
    oldest = (await server.table.row(first))["next_run_at"]
    assert found["other"].oldest_ready_at.ToDatetime() == oldest.replace(tzinfo=None)


async def test_topic_that_only_has_workers_is_there(server: ServerUnderTest) -> None:
    async with server.worker("w1", topics=["idle", "mail"]), server.worker("w2", topics=["mail"]):
        found = await topics(server)

    assert {name: view.workers for name, view in found.items()} == {"idle": 1, "mail": 2}


async def test_paused_topic_says_so(server: ServerUnderTest) -> None:
    async def paused() -> dict[str, bool]:
        return {name: view.paused for name, view in (await topics(server)).items()}

    await server.submit("mail")
    await server.stub.PauseDispatch(pb.PauseDispatchRequest(topic="sms"))
    assert await paused() == {"mail": False, "sms": True}

    await server.stub.PauseDispatch(pb.PauseDispatchRequest())
    assert await paused() == {"mail": True, "sms": True}


async def test_rates_of_two_servers_add_up_and_nothing_counts_twice(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    await here.submit_many(3)
    await there.submit_many(4)
    async with here.worker(capacity=3) as worker:
        jobs = await worker.take(3)
        await worker.complete(jobs[0], jobs[1], capacity=1)
        await worker.fail(jobs[2], discard=True)
    for server in (here, there, here):
        await server.app.views.statistics.record()
    await here.table.connection.execute(MINUTE_AGO)

    for server in replicas:
        last_hour = (await topics(server))["mail"].last_hour
        counted = (last_hour.submitted, last_hour.completed, last_hour.failed, last_hour.dead_lettered)
        assert counted == (7, 2, 1, 1)


async def test_one_count_serves_all_who_ask(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", 60 * SECOND)
    for _ in range(5):
        await topics(server)

    statements = server.app.metrics.statement_time.values
    assert sum(statements["topic_depths",].counts) == 1


async def test_workers_of_all_servers_are_shown_with_what_they_hold(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with here.worker("a", topics=["mail"], capacity=2) as a, there.worker("b", topics=["sms", "fax"]):
        ids = await here.submit_many(2)
        await a.take(2)
        await there.app.views.servers.record()
        seen = await workers(here)

    assert [view.worker_id for view in seen] == ["a", "b"]
    assert [(list(view.topics), view.capacity) for view in seen] == [(["mail"], 2), (["fax", "sms"], 10)]
    assert all(view.HasField("connected_at") and view.server for view in seen)
    assert [view.held_count for view in seen] == [2, 0]
    assert {job.job_id for job in seen[0].held} == set(ids)
    for job in seen[0].held:
        row = await here.table.row(job.job_id)
        assert (job.topic, job.attempt) == ("mail", 1)
        assert job.since.ToDatetime() == row["started_at"].replace(tzinfo=None)
        assert job.lease_until.ToDatetime() == row["lease_until"].replace(tzinfo=None)


async def test_worker_that_is_gone_is_shown_for_as_long_as_it_holds_a_job(server: ServerUnderTest) -> None:
    async with server.worker("gone") as worker:
        await server.submit()
        job = await worker.take_one()
        await worker.beat(job)  # it has it: the server will not take it back by itself
    async with server.worker("here", topics=["other"]):
        seen = {view.worker_id: view for view in await workers(server)}

    assert seen.keys() == {"gone", "here"}
    assert seen["gone"].held_count == 1
    assert not seen["gone"].HasField("connected_at")
    assert seen["gone"].server == ""


async def test_no_more_than_twenty_held_jobs_are_listed(server: ServerUnderTest) -> None:
    async with server.worker("busy", capacity=30) as worker:
        await server.submit_many(25)
        await worker.take(25)
        (seen,) = await workers(server)

    assert (seen.held_count, len(seen.held)) == (25, 20)


async def test_workers_of_a_server_that_died_vanish_after_its_silence(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with there.worker("b"):
        await there.app.views.servers.record()
        assert [view.worker_id for view in await workers(here)] == ["b"]

        there.app.views.servers.loop.stop()  # as if it had been killed
        await here.table.connection.execute(
            "UPDATE pulse.servers SET seen_at = now() - $1::interval WHERE id = $2",
            SERVERS_INTERVAL * SERVER_SILENT_ROUNDS,
            there.app.views.servers._id,
        )
        assert await workers(here) == []


async def test_server_that_stops_deletes_its_row_and_stores_its_last_counts(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as here:
        async with server_under_test(database_dsn) as there:
            await there.app.views.servers.record()
            await here.app.views.servers.record()
            assert await here.table.connection.fetchval("SELECT count(*) FROM pulse.servers") == 2
            await there.submit_many(3)
        assert await here.table.connection.fetchval("SELECT count(*) FROM pulse.servers") == 1
        counted = "SELECT sum(submitted) FROM pulse.topic_minutes WHERE topic = 'mail'"
        assert await here.table.connection.fetchval(counted) == 3
