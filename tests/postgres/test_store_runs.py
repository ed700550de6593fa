"""What settings of how jobs run decide when an attempt ends: delays, lost leases and time limits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse.topic_settings import Backoff
from pulse_server.base.bounds import LEASE_EXPIRED_GROUP, TIME_LIMIT_EXCEEDED_GROUP
from pulse_server.jobs.rules import JobStatus, Outcome
from tests.fakes.store import LEASE, failure
from tests.postgres.runs import HOUR, MINUTE, SECOND, Runs, about
from tests.postgres.sessions import Connection

STEADY = Backoff(first=MINUTE, factor=1, longest=MINUTE, jitter=0)
TRIPLING = Backoff(first=10 * SECOND, factor=3, longest=100 * SECOND, jitter=0)


async def test_failure_waits_for_the_declared_backoff(runs: Runs) -> None:
    await runs.declare(backoff=TRIPLING)
    claim = await runs.store.start()
    delays = []
    for _ in range(4):
        await runs.store.repo.fail_jobs([failure(claim)])
        delays.append((await runs.waits(claim.job_id)).total_seconds())
        claim = await runs.store.claim_again(claim.job_id)

    assert delays == [about(span * SECOND) for span in (10, 30, 90, 100)]


async def test_lost_lease_waits_for_the_backoff_of_an_operator(runs: Runs) -> None:
    await runs.declare(backoff=TRIPLING)
    await runs.override(backoff=Backoff(first=HOUR, factor=2, longest=HOUR, jitter=0))
    job = await runs.lose(await runs.store.start())

    assert (await runs.waits(job.id)).total_seconds() == about(HOUR)


@pytest.mark.parametrize("run_settings", [{"backoff": STEADY, "max_crashes": 5}])
async def test_topic_without_settings_has_the_backoff_of_the_settings(runs: Runs) -> None:
    failed, lost = await runs.store.start(), await runs.store.start()
    await runs.store.repo.fail_jobs([failure(failed)])
    await runs.lose(lost)

    for job_id in (failed.job_id, lost.job_id):
        assert (await runs.waits(job_id)).total_seconds() == about(MINUTE)


@pytest.mark.parametrize(
    ("is_policy", "is_overridden", "waited"),
    [(False, True, HOUR), (True, False, HOUR), (True, True, MINUTE), (False, False, HOUR)],
)
async def test_operator_wins_over_the_delay_of_a_declared_policy_alone(
    runs: Runs, is_policy: bool, is_overridden: bool, waited: timedelta
) -> None:
    await runs.declare(backoff=TRIPLING)
    if is_overridden:
        await runs.override(backoff=STEADY)
    claim = await runs.store.start()
    report = failure(claim, retry_after=HOUR, retry_after_is_policy=is_policy)
    await runs.store.repo.fail_jobs([report])

    assert (await runs.waits(claim.job_id)).total_seconds() == about(waited)


async def test_attempt_that_timed_out_says_so(runs: Runs) -> None:
    claim = await runs.store.start()
    await runs.store.repo.fail_jobs([failure(claim, "too slow", timed_out=True)])

    (attempt,) = (await runs.job(claim.job_id)).history
    assert (attempt.outcome, attempt.error) == (Outcome.TIMED_OUT, "too slow")


async def test_job_is_dead_after_as_many_lost_leases_as_the_settings_allow(runs: Runs) -> None:
    claim = await runs.store.start(max_attempts=25)
    for crashes in (1, 2):
        job = await runs.lose(claim)
        assert (job.status, job.crashes) == (JobStatus.RETRYING, crashes)
        claim = await runs.store.claim_again(job.id)
    job = await runs.lose(claim)

    assert (job.status, job.attempts, job.crashes) == (JobStatus.DEAD_LETTERED, 3, 3)
    assert job.last_error == "worker lease expired, 3 times: max_crashes is reached"
    assert job.error_group == LEASE_EXPIRED_GROUP
    assert {past.outcome for past in job.history} == {Outcome.LEASE_EXPIRED}


async def test_settings_of_the_topic_say_how_many_leases_may_be_lost(runs: Runs) -> None:
    await runs.override(max_crashes=1)
    job = await runs.lose(await runs.store.start(max_attempts=25))

    assert (job.status, job.crashes) == (JobStatus.DEAD_LETTERED, 1)
    assert job.last_error == "worker lease expired, 1 time: max_crashes is reached"
    assert job.error_group == LEASE_EXPIRED_GROUP


async def test_failures_and_undelivered_attempts_are_no_crashes(runs: Runs) -> None:
    claim = await runs.store.start(confirms=True, max_attempts=25)
    await runs.store.time.lapse_leases(claim.job_id)
    await runs.store.repo.reap_expired(100)
    claim = await runs.store.claim_again(claim.job_id)
    await runs.store.repo.fail_jobs([failure(claim)])

    job = await runs.job(claim.job_id)
    assert (job.status, job.attempts, job.crashes) == (JobStatus.RETRYING, 1, 0)


async def test_retry_of_an_operator_counts_lost_leases_anew(runs: Runs) -> None:
    await runs.override(max_crashes=1)
    job = await runs.lose(await runs.store.start(max_attempts=25))
    await runs.store.repo.retry_jobs([job.id], 5)

    job = await runs.job(job.id)
    assert (job.status, job.crashes) == (JobStatus.PENDING, 0)


async def test_lease_is_extended_up_to_the_time_limit_and_a_lease_more(runs: Runs) -> None:
    claim = await runs.store.start()
    started = (await runs.job(claim.job_id)).started_at
    assert started is not None
    answer = await runs.store.repo.extend_leases([claim], LEASE, {"email": SECOND})

    assert (answer.extended, answer.over, answer.late) == ({claim}, set(), set())
    until = (await runs.job(claim.job_id)).lease_until
    assert until is not None
    assert until <= started + SECOND + LEASE
    answer = await runs.store.repo.extend_leases([claim], LEASE, {"other": SECOND, "": 10 * HOUR})
    assert (answer.extended, answer.over, answer.late) == ({claim}, set(), set())


async def test_heartbeat_past_the_limit_extends_nothing_and_stops_the_worker(
    runs: Runs, connection: Connection
) -> None:
    await runs.override(attempt_timeout=MINUTE)
    claim = await runs.store.start()
    await connection.execute("UPDATE pulse.jobs SET started_at = started_at - interval '1 hour'")
    before = (await runs.job(claim.job_id)).lease_until
    answer = await runs.store.repo.extend_leases([claim], LEASE, {"email": MINUTE})

    assert (answer.extended, answer.over, answer.late) == (set(), {claim}, set())
    assert (await runs.job(claim.job_id)).lease_until == before


@pytest.mark.parametrize("timeout", [None, 2 * HOUR, MINUTE])
async def test_reap_says_whether_the_time_limit_ended_the_lease(
    runs: Runs, connection: Connection, timeout: timedelta | None
) -> None:
    """The lease ends an hour and a minute after the start, which is the limit of a minute and the grace."""
    if timeout is not None:
        await runs.override(attempt_timeout=timeout)
    claim = await runs.store.start(max_attempts=1)
    await connection.execute(
        "UPDATE pulse.jobs SET started_at = now() - $1::interval - interval '2 minutes', delivered = true, "
        "lease_until = now() - interval '1 minute'",
        LEASE,
    )
    await connection.execute(
        "UPDATE pulse.lease_checks SET check_at = now() - interval '1 hour', settled = true"
    )
    (reaped,) = await runs.store.repo.reap_expired(10)

    job = await runs.job(claim.job_id)
    is_timed_out = timeout == MINUTE
    assert reaped.timed_out is is_timed_out
    assert job.history[-1].outcome is (Outcome.TIMED_OUT if is_timed_out else Outcome.LEASE_EXPIRED)
    assert job.last_error == ("time limit exceeded" if is_timed_out else "worker lease expired")
    assert job.error_group == (TIME_LIMIT_EXCEEDED_GROUP if is_timed_out else LEASE_EXPIRED_GROUP)
    assert job.crashes == 1
