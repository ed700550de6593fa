"""Another transaction holds locks for several leases: calls are answered, and no worker loses a job."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

import pulse
from faults.bad_days.scale import PATIENT, SEVERAL_LEASES_SECONDS
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.base import tuning
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.system.stage import Stage, all_completed
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

RUNNING = 30
NO_JOB = "0190f3a0-0000-7000-8000-00000000dead"
# Of each kind: all of them together are far more than the connections.
AT_ONCE = tuning.HOT_CONNECTIONS


async def test_calls_behind_locks_are_unavailable_and_no_live_worker_loses_a_job(
    stage: Stage, table: JobsTable
) -> None:
    """First on a single job: one statement extends the leases of all jobs of a worker, and waits for it.
    Then on the whole table: every connection of the server waits, and calls wait for connections."""
    server = stage.start_pulsed(program="faults.bad_days.hasty_pulsed", **PATIENT)
    await stage.serving(server)
    gate = stage.gate("locked")
    await stage.worker(server.address, "gated", concurrency=RUNNING)
    async with pulse.Pulse(server.address) as p, grpc.aio.insecure_channel(server.address) as channel:
        handles = await p.enqueue_many("gated", [Errand(gate=gate)] * RUNNING)
        await eventually(lambda: len(stage.executions()) == RUNNING, "all of them run")

        async with table.connection.transaction():
            await table.connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", handles[0].id)
            await asyncio.sleep(SEVERAL_LEASES_SECONDS)
        await _all_leases_live(table)

        async with table.connection.transaction():
            await table.connection.execute("LOCK TABLE pulse.jobs IN ACCESS EXCLUSIVE MODE")
            answers = await asyncio.gather(*map(_answer_of, _calls(PulseServiceStub(channel))))
        assert {code for code, _ in answers} == {grpc.StatusCode.UNAVAILABLE}
        holder = table.connection.get_server_pid()
        assert {said for _, said in answers if not _asks_to_try_again(said, holder)} == set()
        await _all_leases_live(table)

        stage.open(gate)
        await stage.worker(server.address, "work")
        late = await p.enqueue("work", Errand("after the lock"))
        await all_completed(table, [*handles, late])
    assert await table.count("attempts <> 1 OR history IS NOT NULL") == 0
    assert await table.count() == RUNNING + 1, "a call that was unavailable is not carried out later"
    assert {len(starts) for starts in stage.by_job(handles).values()} == {1}


async def test_submits_pass_a_lock_on_a_day_and_on_the_lease_checks(stage: Stage, table: JobsTable) -> None:
    """As VACUUM FULL and CLUSTER take it. The worker is idle, so that each submit would be handed over."""
    server = await stage.pulsed()
    await stage.worker(server.address, "work")
    connection = table.connection
    await connection.execute("SELECT pulse.add_completed_days_v1(current_date - 9, 1)")
    day = await connection.fetchval("SELECT 'completed_jobs_' || to_char(current_date - 9, 'YYYYMMDD')")
    async with pulse.Pulse(server.address) as p:
        handles = [await p.enqueue("work", Errand())]
        for locked in (day, "lease_checks"):
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE pulse.{locked} IN ACCESS EXCLUSIVE MODE")
                handles += [await p.enqueue("work", Errand()) for _ in range(5)]
                handles += await p.enqueue_many("work", [Errand()] * 20)
        await all_completed(table, handles)


async def test_locked_audit_refuses_actions_and_stops_no_job(stage: Stage, table: JobsTable) -> None:
    """As VACUUM FULL takes the lock. The refused action has changed nothing."""
    server = await stage.pulsed()
    await stage.worker(server.address, "work")
    connection = table.connection
    async with pulse.Pulse(server.address) as p:
        later = await p.enqueue("later", Errand())
        async with connection.transaction():
            await connection.execute("LOCK TABLE pulse.audit IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(pulse.Unavailable, match="Another session of the database holds a lock"):
                await p.cancel_batch(topic="later")
            handles = [await p.enqueue("work", Errand()) for _ in range(20)]
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(handle.result() for handle in handles))
        assert (await p.get_job(later.id)).status == "PENDING"


async def test_keys_of_open_transactions_delay_no_other_submit(stage: Stage, table: JobsTable) -> None:
    """Two of them are submitted again and again, which would use up every slot for submits."""
    server = await stage.pulsed()
    connection = table.connection
    async with pulse.Pulse(server.address) as p, grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = PulseServiceStub(channel)
        async with connection.transaction():
            await connection.execute(
                """INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, submitted_at,
                                           next_run_at, queued, status, idempotency_key)
                   SELECT gen_random_uuid(), 'mail', '', 0, 1, now(), now(), true, 'PENDING', key
                   FROM unnest(ARRAY['first', 'second']) AS key"""
            )
            answers: dict[str, list[tuple[grpc.StatusCode, str]]] = {"first": [], "second": []}
            repeating = [
                asyncio.create_task(_keep_submitting(stub, key, given)) for key, given in answers.items()
            ]
            for number in range(20):
                await p.enqueue("mail", Errand(), key=f"free-{number}")
                await p.enqueue("mail", Errand())
            await eventually(lambda: all(answers.values()), "both held keys are refused")
            for task in repeating:
                task.cancel()
            await asyncio.wait(repeating)
        for key, given in answers.items():
            assert {code for code, _ in given} == {grpc.StatusCode.UNAVAILABLE}
            assert all(f"idempotency_key '{key}'" in said for _, said in given)
        assert await table.count() == 42


async def _keep_submitting(stub: Any, key: str, answers: list[tuple[grpc.StatusCode, str]]) -> None:
    while True:
        request = pb.SubmitJobRequest(topic="mail", idempotency_key=key)
        answers.append(await _answer_of(stub.SubmitJob(request, timeout=PATIENCE_SECONDS)))


def _calls(stub: Any) -> Iterator[Any]:
    for _ in range(AT_ONCE):
        yield stub.SubmitJob(pb.SubmitJobRequest(topic="locked"), timeout=PATIENCE_SECONDS)
        yield stub.GetJob(pb.GetJobRequest(job_id=NO_JOB), timeout=PATIENCE_SECONDS)
        yield stub.ListJobs(pb.ListJobsRequest(limit=10), timeout=PATIENCE_SECONDS)
        yield stub.CancelJob(pb.CancelJobRequest(job_id=NO_JOB), timeout=PATIENCE_SECONDS)
        yield stub.RetryJob(pb.RetryJobRequest(job_id=NO_JOB), timeout=PATIENCE_SECONDS)
        yield stub.DeleteJob(pb.DeleteJobRequest(job_id=NO_JOB), timeout=PATIENCE_SECONDS)
        yield stub.ReportResult(
            pb.ReportResultRequest(job_id=NO_JOB, worker_id="w", attempt=1, success=True),
            timeout=PATIENCE_SECONDS,
        )
        claims = [pb.Claim(job_id=NO_JOB, attempt=1)]
        yield stub.Heartbeats(pb.HeartbeatsRequest(worker_id="w", claims=claims), timeout=PATIENCE_SECONDS)
        yield stub.Release(pb.ReleaseRequest(worker_id="w", claims=claims), timeout=PATIENCE_SECONDS)


async def _answer_of(call: Any) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def _asks_to_try_again(said: str, holder: int) -> bool:
    """An operator learns who holds the lock."""
    if said.startswith("Another session of the database holds a lock"):
        return f"process {holder} of role" in said and "Try again" in said
    return said.startswith("The database") and said.endswith("Try again.")


async def _all_leases_live(table: JobsTable) -> None:
    async def live() -> bool:
        return await table.count("status = 'RUNNING' AND lease_until > now()") == RUNNING

    await eventually(live, "the lease of each running job is extended again")
