"""ListFindings over real gRPC and Postgres: a bad deploy comes first, and limits are no trouble."""

import json
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.base.metrics import BOUNDS
from pulse_server.views import vitals
from tests.rows import each_row
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", 0 * SECOND)
    monkeypatch.setattr(tuning, "SAMPLE_REST", 0)


async def findings(server: ServerUnderTest, limit: int = 0) -> list[pb.Finding]:
    return list((await server.stub.ListFindings(pb.ListFindingsRequest(limit=limit))).findings)


async def make_old(database_dsn: str, age: str = "20 minutes") -> None:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute(f"UPDATE pulse.jobs SET next_run_at = next_run_at - interval '{age}'")
    await connection.close()


async def test_bad_deploy_is_the_first_finding_at_once(server: ServerUnderTest, database_dsn: str) -> None:
    for number in range(5):
        await server.submit(f"quiet-{number}")
    await make_old(database_dsn)
    async with server.worker("w", topics=["payments"], capacity=30) as worker:
        await server.submit_many(30, "payments")
        for job in await worker.take(30):
            await worker.fail(job, discard=True)
    await server.app.views.statistics.record()

    first, *others = await findings(server)

    assert (first.topic, first.kind, first.urgent) == ("payments", "dead", True)
    assert first.sentence == (
        "dead-lettered 30 jobs in the last 5 min; fails 100% of its attempts: 30 of 30 in the last 5 min."
    )
    assert {other.topic for other in others} == {f"quiet-{number}" for number in range(5)}
    assert all(other.kind == "starving" for other in others)
    assert len(await findings(server, limit=2)) == 2


async def test_findings_go_by_the_clock_of_the_database(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a server may be wrong."""
    monkeypatch.setattr(server.app.views.servers, "now", lambda: datetime.now(UTC) + timedelta(hours=1))
    await server.submit("mail")

    (finding,) = await findings(server)

    assert finding.sentence.startswith("has 1 ready job and no worker, for 1h")


async def test_topic_whose_only_worker_is_quiet_has_none(server: ServerUnderTest, database_dsn: str) -> None:
    """A worker that was quieted and forgotten."""
    async with server.worker("w", topics=["mail"]):
        await server.stub.SetWorkerState(pb.SetWorkerStateRequest(worker_id="w", state="quiet"))
        await server.submit("mail")
        await make_old(database_dsn, "5 minutes")

        (finding,) = await findings(server)

        assert (finding.kind, finding.urgent) == ("starving", True)
        assert finding.sentence.startswith("has 1 ready job and no worker but 1 quiet one, for 5m")


async def test_run_that_takes_longer_than_usual_is_found(
    server: ServerUnderTest, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "SHORTEST_LONG_RUN", timedelta(0))
    async with server.worker("w", topics=["mail"], capacity=2) as worker:
        await server.submit_many(2, "mail")
        await worker.take(2)
        assert await findings(server) == [], "nothing is usual yet"
        connection = await asyncpg.connect(database_dsn)
        one_second = {BOUNDS.index(1.0): 200}
        await connection.execute(
            """INSERT INTO pulse.topic_minutes (minute, topic, run_buckets)
               VALUES (date_trunc('minute', now()) - interval '3 hours', 'mail', $1::text::jsonb)""",
            json.dumps(one_second),
        )
        assert await findings(server) == [], "no longer than usual yet"
        await connection.execute(
            "UPDATE pulse.jobs SET started_at = started_at - interval '5 minutes' "
            "WHERE id = (SELECT min(id::text)::uuid FROM pulse.jobs)"
        )
        await connection.close()

        (finding,) = await findings(server)

    assert (finding.topic, finding.kind, finding.urgent) == ("mail", "long", False)
    assert finding.sentence.startswith("has 1 run longer than usual, up to 5m")


async def test_paused_queue_is_one_finding(server: ServerUnderTest, database_dsn: str) -> None:
    await server.submit("mail")
    await make_old(database_dsn)
    await server.stub.PauseDispatch(pb.PauseDispatchRequest(reason="a move"))

    (finding,) = await findings(server)

    assert (finding.topic, finding.kind, finding.urgent) == ("", "paused", False)
    assert "(a move); 1 ready job waits." in finding.sentence


@each_row(
    "topic, limits, reason",
    [
        ("a", pb.TopicEntries(running=1), "is at its limit"),
        ("b", pb.TopicEntries(running=1, pool="gpu"), "waits for its pool gpu"),
        ("c", pb.TopicEntries(per_lane=1), "has no lane that may start a job"),
        ("d", pb.TopicEntries(ordered=True), "has no lane that may start a job"),
    ],
)
async def test_topic_that_is_full_by_its_limits_is_limited_and_does_no_harm(
    server: ServerUnderTest, database_dsn: str, topic: str, limits: pb.TopicEntries, reason: str
) -> None:
    await server.stub.SetTopic(pb.SetTopicRequest(topic=topic, entries=limits))
    await server.dispatch_settles()
    sweep, gauge = server.app.topics.limit_sweep, server.app.metrics.topic_limited
    async with server.worker("w", topics=[topic], capacity=5) as worker:
        await server.submit(topic, lane="acme")
        job = await worker.take_one()
        await server.submit(topic, lane="acme")
        await server.dispatch_settles()
        await make_old(database_dsn)
        await sweep.tick()

        (finding,) = await findings(server)
        assert (finding.kind, finding.harm) == ("limited", 0)
        assert finding.sentence.startswith(f"{reason}: its oldest ready job has waited")
        assert gauge.read()[topic,] == 1

        await worker.complete(job)
        await worker.complete(await worker.take_one())
        await sweep.tick()
        assert gauge.read()[topic,] == 0


async def test_lane_that_has_most_of_the_waiting_jobs_is_found(
    server: ServerUnderTest, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.views.attention.FLOOD_JOBS", 5)
    await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(per_lane=1)))
    await server.dispatch_settles()
    async with server.worker("w", topics=["mail"], capacity=2) as worker:
        for lane in ["acme"] * 10 + ["zeta"] * 2:
            await server.submit("mail", lane=lane)
        await worker.take(2)
        await server.dispatch_settles()
        await make_old(database_dsn)

        (finding,) = await findings(server)

    assert "in the lane acme" in finding.sentence
