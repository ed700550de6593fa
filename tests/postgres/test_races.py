"""Races, staged: one connection stops in the middle of its transaction, and another comes along."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.errors import AlreadyExists
from pulse_server.jobs.inserts import batch
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.reads import array_text, claim_columns, compact_claim_columns
from pulse_server.jobs.reports import CLAIM_BYTES
from pulse_server.jobs.rules import LIVE, REDRIVABLE, TERMINAL, Claim, JobStatus
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.postgres.sessions import Connection, blocked
from tests.postgres.sql_files import TRANSITIONS

B_CLAIMS_ONE = [1, [1], ["B"], [False], LEASE, CLAIM_BYTES, [], 0, None, None]

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")


@pytest.fixture
async def rival(second_connection: Connection) -> Connection:
    """A connection in the middle of a transaction. What it does holds its row locks until it commits."""
    await second_connection.execute("BEGIN")
    return second_connection


async def run(rival: Connection, name: str, *args: Any) -> Any:
    rows = await rival.fetch(TRANSITIONS[name], *args)
    assert rows, f"{name} should have found its row"
    return rows


async def complete(rival: Connection, claim: Claim) -> None:
    ids, *rest = compact_claim_columns([claim])
    await run(rival, "complete_jobs", array_text(ids), *rest, None)


async def test_claim_skips_a_row_that_another_claim_holds(store: Store, rival: Connection) -> None:
    first, second = await store.submit(a_job(), a_job())
    await run(rival, "claim_batch", ["email"], *B_CLAIMS_ONE)

    assert [claim.job_id for claim in await store.claim("A", 5)] == [second]
    await rival.execute("COMMIT")

    assert await store.claim("A", 5) == []
    assert await store.repo.current_claims([Claim(first, "B", 1, 1)])


async def test_row_of_a_claim_that_was_rolled_back_is_claimed_next(store: Store, rival: Connection) -> None:
    (job_id,) = await store.submit(a_job())
    await run(rival, "claim_batch", ["email"], *B_CLAIMS_ONE)
    await rival.execute("ROLLBACK")

    assert await store.claim("A") == [Claim(job_id, "A", 1, 1)]


async def test_reap_skips_a_row_that_is_being_beaten(store: Store, rival: Connection) -> None:
    claim = await store.start()
    await store.time.lapse_leases(claim.job_id)
    await run(rival, "extend_leases", *claim_columns([claim]), LEASE, None, None, None)

    assert await store.repo.reap_expired(10) == []
    await rival.execute("COMMIT")

    assert await store.repo.reap_expired(10) == []
    assert await store.repo.current_claims([claim]) == {claim}


async def test_beat_that_waited_for_the_reap_is_lost(
    store: Store, connection: Connection, rival: Connection
) -> None:
    claim = await store.start()
    await store.time.lapse_leases(claim.job_id)
    await run(rival, "reap_expired", 10, None, "", 10, None, None, None, LEASE, "")

    beating = await blocked(connection, store.repo.extend_leases([claim], LEASE))
    await rival.execute("COMMIT")

    assert not any(await beating)
    assert await store.status(claim.job_id) is JobStatus.RETRYING


async def test_report_that_waited_for_the_reap_is_lost(
    store: Store, connection: Connection, rival: Connection
) -> None:
    claim = await store.start()
    await store.time.lapse_leases(claim.job_id)
    await run(rival, "reap_expired", 10, None, "", 10, None, None, None, LEASE, "")

    reporting = await blocked(connection, store.repo.complete_jobs([claim]))
    await rival.execute("COMMIT")

    assert not await reporting


async def test_cancel_that_waited_for_the_completion_comes_too_late(
    store: Store, connection: Connection, rival: Connection
) -> None:
    claim = await store.start()
    await complete(rival, claim)

    canceling = await blocked(connection, store.repo.cancel_jobs([claim.job_id], ""))
    await rival.execute("COMMIT")

    assert await canceling == []
    assert await store.status(claim.job_id) is JobStatus.COMPLETED


async def test_completion_that_waited_for_the_cancel_comes_too_late(
    store: Store, connection: Connection, rival: Connection
) -> None:
    claim = await store.start()
    await run(rival, "cancel_jobs", [claim.job_id], "", list(LIVE), None)

    completing = await blocked(connection, store.repo.complete_jobs([claim]))
    await rival.execute("COMMIT")

    assert not await completing
    assert await store.status(claim.job_id) is JobStatus.CANCELED


async def test_cancel_that_waited_for_a_claim_ends_that_claim(
    store: Store, connection: Connection, rival: Connection
) -> None:
    (job_id,) = await store.submit(a_job())
    await run(rival, "claim_batch", ["email"], *B_CLAIMS_ONE)

    canceling = await blocked(connection, store.repo.cancel_jobs([job_id], "stop"))
    await rival.execute("COMMIT")
    (cancellation,) = await canceling

    assert cancellation.ended_claim == Claim(job_id, "B", 1, 1)
    assert cancellation.job.status is JobStatus.CANCELED
    assert [entry.worker_id for entry in cancellation.job.history] == ["B"]


async def test_cancel_that_waited_for_a_failure_keeps_its_history(
    store: Store, connection: Connection, rival: Connection
) -> None:
    claim = await store.start()
    columns = claim_columns([claim])
    await run(rival, "fail_jobs", *columns, ["boom"], [None], [False], [""], [False], [False], None, [None])

    canceling = await blocked(connection, store.repo.cancel_jobs([claim.job_id], "stop"))
    await rival.execute("COMMIT")
    (cancellation,) = await canceling

    assert cancellation.ended_claim is None
    assert [entry.error for entry in cancellation.job.history] == ["boom"]


async def test_of_two_results_for_one_attempt_the_second_is_not_taken(
    store: Store, connection: Connection, rival: Connection
) -> None:
    claim = await store.start()
    await complete(rival, claim)

    failing = await blocked(connection, store.repo.fail_jobs([failure(claim)]))
    await rival.execute("COMMIT")

    assert await failing == {}
    assert (await store.job(claim.job_id)).last_error is None


async def test_claim_does_not_take_a_job_that_is_being_canceled(store: Store, rival: Connection) -> None:
    (job_id,) = await store.submit(a_job())
    await run(rival, "cancel_jobs", [job_id], "", list(LIVE), None)

    assert await store.claim() == []
    await rival.execute("COMMIT")
    assert await store.claim() == []


async def test_delete_that_waited_for_a_retry_leaves_the_job(
    store: Store, connection: Connection, rival: Connection
) -> None:
    job_id = await store.reach(JobStatus.DEAD_LETTERED)
    await run(rival, "retry_jobs", [job_id], 1, list(REDRIVABLE), False, timedelta(0), False, None)

    deleting = await blocked(connection, store.repo.delete_jobs([job_id]))
    await rival.execute("COMMIT")

    assert await deleting == {}
    assert await store.status(job_id) is JobStatus.PENDING


async def test_retry_that_waited_for_the_delete_finds_no_job(
    store: Store, connection: Connection, rival: Connection
) -> None:
    job_id = await store.reach(JobStatus.DEAD_LETTERED)
    await run(rival, "delete_jobs", [job_id], list(TERMINAL))

    retrying = await blocked(connection, store.repo.retry_jobs([job_id], 1))
    await rival.execute("COMMIT")

    assert await retrying == []
    assert await store.repo.get_job(job_id) is None


@pytest.mark.parametrize("statuses", [LIVE, {JobStatus.PENDING}], ids=["whatever lives", "what waits"])
async def test_prioritize_that_waited_for_a_claim_goes_by_what_the_job_is_now(
    store: Store, connection: Connection, rival: Connection, statuses: set[JobStatus]
) -> None:
    (job_id,) = await store.submit(a_job())
    await run(rival, "claim_batch", ["email"], *B_CLAIMS_ONE)

    prioritizing = await blocked(connection, store.repo.prioritize_jobs([job_id], 7, statuses))
    await rival.execute("COMMIT")

    assert len(await prioritizing) == (JobStatus.RUNNING in statuses)
    assert (await store.job(job_id)).priority == (7 if JobStatus.RUNNING in statuses else 0)
    assert await store.repo.current_claims([Claim(job_id, "B", 1, 1)])


async def test_claim_skips_a_row_that_is_being_prioritized_and_finds_it_afterwards(
    store: Store, rival: Connection
) -> None:
    first, second = await store.submit(a_job(), a_job())
    await run(rival, "prioritize_jobs", [first], 7, list(LIVE), None)

    assert [claim.job_id for claim in await store.claim("A")] == [second]
    await rival.execute("COMMIT")

    assert [claim.job_id for claim in await store.claim("A")] == [first]


async def test_promoter_skips_a_row_that_is_being_canceled(store: Store, rival: Connection) -> None:
    claim = await store.start()
    await store.repo.fail_jobs([failure(claim)])
    await store.time.make_due(claim.job_id)
    await run(rival, "cancel_jobs", [claim.job_id], "", list(LIVE), None)

    assert (await store.repo.promote_due(10)).promoted == 0
    await rival.execute("COMMIT")
    assert (await store.repo.promote_due(10)).promoted == 0


@pytest.mark.parametrize("payload", [b"{}", b"other"], ids=["same content", "other content"])
async def test_submit_that_waited_for_its_twin_is_a_duplicate_or_refused(
    store: Store, connection: Connection, rival: Connection, payload: bytes
) -> None:
    job = a_job()
    await run(rival, "insert_jobs", *batch([job]))

    submitting = await blocked(connection, store.repo.insert_jobs([job._replace(payload=payload), a_job()]))
    await rival.execute("COMMIT")
    answer, neighbor = await submitting

    if payload == job.payload:
        assert answer == Submitted(job.id, True)
    else:
        assert isinstance(answer, AlreadyExists)
    assert isinstance(neighbor, Submitted)


async def test_submit_whose_twin_was_rolled_back_is_inserted(
    store: Store, connection: Connection, rival: Connection
) -> None:
    job = a_job(idempotency_key="k")
    await run(rival, "insert_jobs", *batch([job._replace(id=a_job().id)]))

    submitting = await blocked(connection, store.repo.insert_jobs([job]))
    await rival.execute("ROLLBACK")

    assert await submitting == [Submitted(job.id, False)]
