"""Metrics scraped over HTTP and read by Prometheus's own parser, against what was really done."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client.parser import text_string_to_metric_families

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.base.metrics import Metrics
from pulse_server.work.retention import RETENTION_INTERVAL
from tests.fakes.time_machines import lapse_all_leases
from tests.server.http_caller import get
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

MINUTE = timedelta(minutes=1)
Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples: dict[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._samples.get((name, frozenset(labels.items())))

    def by(self, label: str, name: str) -> dict[str, float]:
        """The values of one metric by one of its labels."""
        return {
            dict(labels)[label]: value for (sample, labels), value in self._samples.items() if sample == name
        }


async def scrape(server: ServerUnderTest) -> Scrape:
    address = server.app.observation.http_address
    assert address is not None
    answer = await get(address, "/metrics")
    assert answer.status == 200
    return Scrape(answer.text)


async def sampled(server: ServerUnderTest) -> Scrape:
    """A scrape after a fresh sample of the database."""
    await server.app.observation.vitals.tick()
    return await scrape(server)


@asynccontextmanager
async def observed(dsn: str, **settings: Any) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(dsn, http_address="127.0.0.1:0", **settings) as server:
        yield server


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with observed(database_dsn) as server:
        yield server


async def reap_all_running(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_took: timedelta) -> bool:
        return True

    monkeypatch.setattr(server.app.work.lease_keeping.watchdog, "_may_reap", at_once)
    await lapse_all_leases(server.table.connection)
    await server.app.work.lease_keeping.watchdog.tick()


async def test_life_of_jobs_is_counted(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    same_id = str(uuid.uuid4())
    await server.submit_many(9)
    for _ in range(2):  # the second is the first again
        await server.submit(job_id=same_id)
    (last_try,) = await server.submit_many(1, max_attempts=1)

    async with server.worker(capacity=20) as worker:
        jobs = {job.job_id: job for job in await worker.take(11)}
        hopeless = jobs.pop(last_try)
        held = list(jobs.values())
        await worker.complete(*held[:3])
        await worker.fail(held[3], after=MINUTE)
        await worker.fail(held[4], after=MINUTE)
        await worker.fail(held[5], discard=True)
        await worker.fail(hopeless)  # it has no other attempt
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=held[6].job_id))
        with pytest.raises(grpc.aio.AioRpcError):  # and its worker's report comes too late
            await worker.fail(held[6])
        await worker.release(held[7])
        again = await worker.take_one()
        assert again.job_id == held[7].job_id
        for job in (again, held[8], held[9]):
            assert await worker.beat(job) == []
        await reap_all_running(server, monkeypatch)
    await server.stub.RetryJob(pb.RetryJobRequest(job_id=held[5].job_id))

    metric = await scrape(server)

    assert metric("pulse_jobs_submitted_total", topic="mail") == 11
    assert metric("pulse_jobs_claimed_total", topic="mail") == 11 + 1
    assert metric("pulse_queue_wait_seconds_count", topic="mail") == 11 + 1
    assert metric("pulse_jobs_completed_total", topic="mail") == 3
    assert metric("pulse_run_seconds_count", topic="mail", outcome="completed") == 3
    assert metric.by("kind", "pulse_jobs_failed_total") == {"error": 3, "discarded": 1, "lease_expired": 3}
    assert metric("pulse_run_seconds_count", topic="mail", outcome="failed") == 4
    assert metric("pulse_jobs_reaped_total", topic="mail") == 3
    assert metric("pulse_jobs_retried_total", topic="mail") == 2 + 3
    assert metric("pulse_jobs_dead_lettered_total", topic="mail") == 1 + 1
    assert metric("pulse_jobs_released_total", topic="mail") == 1
    assert metric("pulse_jobs_canceled_total", topic="mail") == 1
    assert metric("pulse_jobs_redriven_total", topic="mail") == 1


async def test_calls_statements_and_batches_are_counted(server: ServerUnderTest) -> None:
    await server.submit_many(5)
    await server.submit()
    with pytest.raises(grpc.aio.AioRpcError):
        await server.submit("no such topic!")
    with pytest.raises(grpc.aio.AioRpcError):
        await server.get("0190f3a0-0000-7000-8000-00000000dead")
    async with server.worker() as worker:
        await worker.complete(*await worker.take(6))

    metric = await scrape(server)

    assert metric("pulse_rpcs_total", method="SubmitJobs", code="OK") == 1
    assert metric("pulse_rpcs_total", method="SubmitJob", code="OK") == 1
    assert metric("pulse_rpcs_total", method="SubmitJob", code="INVALID_ARGUMENT") == 1
    assert metric("pulse_rpcs_total", method="GetJob", code="NOT_FOUND") == 1
    assert metric("pulse_rpc_seconds_count", method="SubmitJob") == 2
    assert metric("pulse_rpc_seconds_count", method="StreamJobs") is None, "a stream has no latency"
    assert metric("pulse_group_commit_batch_size_count", what="submit") == 2
    assert metric("pulse_group_commit_batch_size_sum", what="submit") == 6
    assert metric("pulse_group_commit_batch_size_sum", what="report") == 6
    assert metric("pulse_statement_seconds_count", statement="insert_jobs") == 2
    assert metric("pulse_statement_seconds_count", statement="complete_jobs") == 1
    assert metric("pulse_statement_failures_total", statement="insert_jobs") is None


async def test_fires_of_schedules_are_counted_with_their_lateness(server: ServerUnderTest) -> None:
    made = await server.stub.CreateSchedule(
        pb.CreateScheduleRequest(topic="report", every=Duration(seconds=3600))
    )
    await server.stub.FireSchedule(
        pb.FireScheduleRequest(schedule_id=made.schedule_id, job_id=str(uuid.uuid4()))
    )
    await server.table.connection.execute(
        "UPDATE pulse.schedules SET next_run_at = now() - interval '100 s' WHERE id = $1", made.schedule_id
    )
    server.app.schedules.scheduler.loop.nudge()
    await server.table.wait_for_count(2, "topic = 'report'")
    await server.app.schedules.scheduler.loop.wait_for_ticks(1)

    metric = await scrape(server)

    assert metric("pulse_jobs_submitted_total", topic="report") == 2
    assert metric("pulse_schedule_lateness_seconds_count") == 1
    assert metric("pulse_schedule_lateness_seconds_bucket", le="60.0") == 0
    assert metric("pulse_schedule_lateness_seconds_bucket", le="300.0") == 1


async def test_deletions_are_counted_by_status(server: ServerUnderTest) -> None:
    await server.submit_many(3)
    async with server.worker() as worker:
        await worker.complete(*await worker.take(3))
    await server.table.connection.execute(
        "UPDATE pulse.completed_jobs "
        "SET submitted_at = now() - interval '1 y', finished_at = now() - interval '1 y'"
    )
    while await server.app.work.retention.day_keeper.tick() < RETENTION_INTERVAL:
        pass

    assert (await scrape(server))("pulse_jobs_deleted_total", status="COMPLETED", actor="retention") == 3


async def test_workers_and_what_they_hold_are_in_the_metrics(server: ServerUnderTest) -> None:
    await server.submit_many(4)
    async with server.worker("w1", capacity=10) as first, server.worker("w2", capacity=5, topics=["sms"]):
        await first.take(4)
        metric = await scrape(server)

    assert metric("pulse_workers_connected") == 2
    assert metric("pulse_workers_capacity") == 15
    assert metric("pulse_workers_held_jobs") == 4


async def test_metrics_of_the_queue_are_those_of_the_sample(server: ServerUnderTest) -> None:
    await server.submit_many(4, "mail")
    await server.submit_many(2, "sms")
    await server.submit_many(3, "later", delay=Duration(seconds=3600))
    async with server.worker(topics=["sms"], capacity=1) as worker:
        await worker.take(1)
        metric = await sampled(server)

    assert metric.by("topic", "pulse_ready_jobs") == {"mail": 4, "sms": 1}
    assert metric.by("topic", "pulse_oldest_ready_seconds").keys() == {"mail", "sms"}
    assert metric("pulse_running_jobs") == 1
    assert set(metric.by("topic", "pulse_dead_letters").values()) == {0}
    assert metric("pulse_schedule_lag_seconds") == 0
    assert (metric("pulse_database_jobs_bytes") or 0) > 0
    age = metric("pulse_vitals_age_seconds")
    assert age is not None
    assert age < 15


async def test_pauses_are_in_the_metrics(server: ServerUnderTest) -> None:
    assert (await scrape(server)).by("topic", "pulse_dispatch_paused") == {"": 0}
    await server.stub.PauseDispatch(pb.PauseDispatchRequest(topic="mail"))
    await server.stub.PauseDispatch(pb.PauseDispatchRequest())
    assert (await scrape(server)).by("topic", "pulse_dispatch_paused") == {"": 1, "mail": 1}
    await server.stub.ResumeDispatch(pb.ResumeDispatchRequest())
    await server.stub.ResumeDispatch(pb.ResumeDispatchRequest(topic="mail"))
    assert (await scrape(server)).by("topic", "pulse_dispatch_paused") == {"": 0}


async def test_pools_are_in_the_metrics(server: ServerUnderTest) -> None:
    await server.submit()
    metric = await scrape(server)
    allowed = {
        "hot": tuning.HOT_CONNECTIONS,
        "beats": tuning.HEARTBEAT_CONNECTIONS,
        "operators": tuning.OPERATOR_CONNECTIONS,
        "reads": tuning.READ_CONNECTIONS,
        "watch": tuning.WATCH_CONNECTIONS,
        "probe": tuning.PROBE_CONNECTIONS,
    }

    for pool, number in allowed.items():
        assert metric("pulse_database_connections", pool=pool, state="allowed") == number
    assert (metric("pulse_database_connections", pool="hot", state="open") or 0) >= 1
    assert metric("pulse_ready") == 1


async def test_scrape_has_the_last_sample_and_sends_no_query(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.submit_many(3)
    await server.app.observation.vitals.tick()
    monkeypatch.setattr(server.app.observation.vitals, "_queries", None)
    server.app._database.watch.close()
    await server.submit_many(3)

    assert (await scrape(server)).by("topic", "pulse_ready_jobs") == {"mail": 3}


async def test_scrapes_at_the_same_time_are_all_answered(server: ServerUnderTest) -> None:
    address = server.app.observation.http_address
    assert address is not None
    answers = await asyncio.gather(*(get(address, "/metrics") for _ in range(10)))

    assert {answer.status for answer in answers} == {200}


async def test_server_without_http_samples_nothing_of_the_queue(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as server:
        assert server.app.observation.http_address is None
        names = {loop.name for loop in server.app.observation.loops}

    assert names == {"readiness", "horizon", "space"}, "these are logged as well"


async def test_loops_that_fail_are_counted(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(server.app.observation.vitals, "_sample", fail)
    server.app.observation.vitals.loop.nudge()
    await server.app.observation.vitals.loop.wait_for_ticks(1)

    assert (await scrape(server))("pulse_loop_failures_total", loop="vitals") == 1


async def test_every_declared_metric_is_rendered(server: ServerUnderTest) -> None:
    metric = (await sampled(server)).families

    assert {instrument.name for instrument in Metrics()} <= metric.keys()
