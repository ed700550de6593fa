"""The watchdog waits a lease after every outage, and otherwise reaps all expired leases."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import NoReturn

import pytest

from pulse_server.base.errors import ResourceExhausted, Unavailable
from pulse_server.jobs.rules import JobStatus
from pulse_server.work.attempts import Leases, Watchdog
from tests.fakes.clock import Seconds
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job
from tests.fakes.topic_settings import no_rules

INTERVAL, TTL = 10, 30


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def watchdog(replica: StoredReplica, seconds: Seconds) -> Watchdog:
    return Watchdog(
        replica.repo,
        replica.publisher,
        replica.spared_workers,
        interval=timedelta(seconds=INTERVAL),
        lease_ttl=timedelta(seconds=TTL),
        clock=seconds,
    )


@pytest.fixture
def leases(replica: StoredReplica, watchdog: Watchdog) -> Leases:
    """What extends the leases, and has the watchdog wait if that fails."""
    return Leases(
        replica.repo,
        replica.publisher,
        replica.spared_workers,
        no_rules(),
        timedelta(seconds=TTL),
        failed=watchdog.wait_again,
    )


async def tick_for(watchdog: Watchdog, seconds: Seconds, duration: int) -> None:
    """Tick at every interval of the duration, its start included."""
    await watchdog.tick()
    for _ in range(duration // INTERVAL):
        seconds.advance(INTERVAL)
        await watchdog.tick()


async def test_nothing_is_reaped_before_the_server_has_run_for_a_lease(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)

    await tick_for(watchdog, seconds, TTL - INTERVAL)
    assert "reap_expired" not in replica.repo.calls

    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert await replica.store.status(claim.job_id) is JobStatus.RETRYING


@pytest.mark.parametrize("seconds", [Seconds(0.0), Seconds(5.0), Seconds(1e9)])
async def test_patience_at_the_start_does_not_depend_on_the_clocks_zero(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    await tick_for(watchdog, seconds, TTL - INTERVAL)
    assert "reap_expired" not in replica.repo.calls
    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert "reap_expired" in replica.repo.calls


async def test_nothing_is_reaped_within_a_lease_after_an_outage(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    await tick_for(watchdog, seconds, TTL)
    replica.repo.is_away = True
    seconds.advance(INTERVAL)
    with pytest.raises(Unavailable):
        await watchdog.tick()
    replica.repo.is_away = False
    replica.repo.calls.clear()

    seconds.advance(INTERVAL)
    await tick_for(watchdog, seconds, TTL - INTERVAL)
    assert "reap_expired" not in replica.repo.calls

    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert "reap_expired" in replica.repo.calls


async def _reap_nothing_for_a_lease(replica: StoredReplica, watchdog: Watchdog, seconds: Seconds) -> None:
    replica.repo.calls.clear()
    seconds.advance(INTERVAL)
    await tick_for(watchdog, seconds, TTL - INTERVAL)
    assert "reap_expired" not in replica.repo.calls

    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert "reap_expired" in replica.repo.calls


async def test_nothing_is_reaped_within_a_lease_after_a_reap_that_failed(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database answers, but its disk is full: heartbeats could not be stored either."""

    async def no_room(*_: object) -> NoReturn:
        raise ResourceExhausted("The database has no room left.")

    with monkeypatch.context() as full:
        full.setattr(replica.repo, "reap_expired", no_room)
        with pytest.raises(ResourceExhausted):
            await tick_for(watchdog, seconds, TTL)

    await _reap_nothing_for_a_lease(replica, watchdog, seconds)


async def test_nothing_is_reaped_within_a_lease_after_beats_that_failed(
    replica: StoredReplica, watchdog: Watchdog, leases: Leases, seconds: Seconds
) -> None:
    claim = await replica.store.start()
    await tick_for(watchdog, seconds, TTL)
    replica.repo.is_away = True
    with pytest.raises(Unavailable):
        await leases.extend([claim])
    replica.repo.is_away = False

    await _reap_nothing_for_a_lease(replica, watchdog, seconds)


@pytest.mark.parametrize("steady_seconds", [0, 2 * TTL])
async def test_nothing_is_reaped_within_a_lease_after_beats_that_failed_during_a_tick(
    replica: StoredReplica,
    watchdog: Watchdog,
    seconds: Seconds,
    monkeypatch: pytest.MonkeyPatch,
    steady_seconds: int,
) -> None:
    """The heartbeats fail while the watchdog asks how long other servers have reached the database."""

    async def beats_fail_meanwhile(_: timedelta) -> timedelta:
        watchdog.wait_again()
        return timedelta(seconds=steady_seconds)

    with monkeypatch.context() as failing:
        failing.setattr(replica.repo, "steady_for", beats_fail_meanwhile)
        await watchdog.tick()
    assert "reap_expired" not in replica.repo.calls

    await _reap_nothing_for_a_lease(replica, watchdog, seconds)


async def test_nothing_is_reaped_within_a_lease_after_a_freeze(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    await tick_for(watchdog, seconds, TTL)
    replica.repo.calls.clear()
    seconds.advance(3 * INTERVAL)  # the process was stopped: ticks are missing

    await tick_for(watchdog, seconds, TTL - INTERVAL)
    assert "reap_expired" not in replica.repo.calls

    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert "reap_expired" in replica.repo.calls


async def test_tick_that_is_merely_late_does_not_start_the_wait_over(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    await tick_for(watchdog, seconds, TTL)
    replica.repo.calls.clear()
    seconds.advance(INTERVAL * 1.5)

    await watchdog.tick()

    assert "reap_expired" in replica.repo.calls


async def test_full_batches_are_followed_at_once_until_nothing_is_left(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.work.attempts.REAP_BATCH", 2)
    await replica.store.submit(*[a_job() for _ in range(5)])
    claims = await replica.store.claim(count=5)
    await replica.store.time.lapse_leases(*[claim.job_id for claim in claims])

    await tick_for(watchdog, seconds, TTL)

    assert replica.repo.calls.count("reap_expired") == 3
    assert {await replica.store.status(claim.job_id) for claim in claims} == {JobStatus.RETRYING}


async def test_ended_claims_are_published_to_dispatch_and_to_the_other_replicas(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    claim = await replica.store.start()
    healthy = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)

    await tick_for(watchdog, seconds, TTL)

    assert replica.roster.expired == [claim]
    assert replica.line.lapsed == [{claim}]
    assert await replica.repo.current_claims([healthy]) == {healthy}


async def test_nothing_to_reap_publishes_nothing(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    await replica.store.start()

    await tick_for(watchdog, seconds, TTL)

    assert (replica.roster.expired, replica.line.lapsed) == ([], [])


async def test_database_that_stood_still_for_part_of_a_lease_is_waited_for_as_after_an_outage(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers in the end, so no call fails; the heartbeats that waited with it are stored after it."""
    await tick_for(watchdog, seconds, TTL)
    claim = await replica.store.start()
    database_now = replica.repo.database_now

    async def late() -> datetime:
        seconds.advance(TTL / 3)
        await replica.store.time.lapse_leases(claim.job_id)
        return await database_now()

    monkeypatch.setattr(replica.repo, "database_now", late)
    await watchdog.tick()
    monkeypatch.undo()
    await tick_for(watchdog, seconds, TTL - INTERVAL)
    assert await replica.store.status(claim.job_id) is JobStatus.RUNNING

    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert await replica.store.status(claim.job_id) is JobStatus.RETRYING


async def test_server_that_starts_counts_the_time_of_others(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no lease is reaped while servers are killed and started more often than once in a lease."""
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)

    async def beside_another(own: timedelta) -> timedelta:
        return own + timedelta(seconds=TTL)

    monkeypatch.setattr(replica.repo, "steady_for", beside_another)
    await watchdog.tick()
    assert await replica.store.status(claim.job_id) is JobStatus.RETRYING


async def test_time_of_others_does_not_count_after_an_outage(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of this server could store no heartbeat."""

    async def beside_another(own: timedelta) -> timedelta:
        return own + timedelta(seconds=TTL)

    monkeypatch.setattr(replica.repo, "steady_for", beside_another)
    replica.repo.is_away = True
    with pytest.raises(Unavailable):
        await watchdog.tick()
    replica.repo.is_away = False

    await _reap_nothing_for_a_lease(replica, watchdog, seconds)


async def test_database_that_answers_late_delays_a_reap_by_three_leases_at_most(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)
    database_now = replica.repo.database_now

    async def late() -> datetime:
        seconds.advance(TTL / 3)
        return await database_now()

    monkeypatch.setattr(replica.repo, "database_now", late)
    await watchdog.tick()
    began_at = seconds()
    while seconds() - began_at < 3 * TTL:
        assert await replica.store.status(claim.job_id) is JobStatus.RUNNING
        seconds.advance(INTERVAL)
        await watchdog.tick()
    assert await replica.store.status(claim.job_id) is JobStatus.RETRYING


async def test_database_that_fails_again_and_again_delays_a_reap_by_three_leases_at_most(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    """It crashes once in every lease. Only the time counts in which it answers."""
    await tick_for(watchdog, seconds, TTL)
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)
    answered = 0
    while answered < 3 * TTL:
        assert await replica.store.status(claim.job_id) is JobStatus.RUNNING
        replica.repo.is_away = True
        seconds.advance(INTERVAL)
        with pytest.raises(Unavailable):
            await watchdog.tick()
        replica.repo.is_away = False
        for _ in range(3):
            seconds.advance(INTERVAL)
            await watchdog.tick()
            answered += INTERVAL
    assert await replica.store.status(claim.job_id) is JobStatus.RETRYING


async def test_tick_that_failed_delays_a_reap_by_half_a_lease_however_long_others_have_waited(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    """The workers could send no heartbeat during it."""
    await tick_for(watchdog, seconds, TTL)
    for _ in range(6 * TTL // INTERVAL):  # the database answers every second tick
        replica.repo.is_away = not replica.repo.is_away
        seconds.advance(INTERVAL)
        with nullcontext() if not replica.repo.is_away else pytest.raises(Unavailable):
            await watchdog.tick()
    replica.repo.calls.clear()
    seconds.advance(TTL / 2 - 1)
    await watchdog.tick()
    assert "reap_expired" not in replica.repo.calls
    seconds.advance(1)
    await watchdog.tick()
    assert "reap_expired" in replica.repo.calls


async def test_beats_that_fail_again_and_again_delay_a_reap_by_three_leases_at_most(
    replica: StoredReplica, watchdog: Watchdog, seconds: Seconds
) -> None:
    """Their workers are spared by name; those that have died are not."""
    await tick_for(watchdog, seconds, TTL)
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)
    for _ in range(3 * TTL // INTERVAL):
        assert await replica.store.status(claim.job_id) is JobStatus.RUNNING
        watchdog.wait_again()
        seconds.advance(INTERVAL)
        await watchdog.tick()
    assert await replica.store.status(claim.job_id) is JobStatus.RETRYING


async def test_workers_whose_beats_failed_are_recorded_before_the_first_reap_that_finds_room(
    replica: StoredReplica,
    watchdog: Watchdog,
    leases: Leases,
    seconds: Seconds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk was full for more leases than the watchdog waits; the loop that records has not come yet."""
    living, dead = await replica.store.start("living"), await replica.store.start("dead")
    await replica.store.time.lapse_leases(living.job_id, dead.job_id)

    async def no_room(*_: object) -> NoReturn:
        raise ResourceExhausted("The database has no room left.")

    with monkeypatch.context() as full:
        for write in ("reap_expired", "extend_leases", "spare_workers"):
            full.setattr(replica.repo, write, no_room)
        await watchdog.tick()
        for _ in range(3 * TTL // INTERVAL - 1):
            with pytest.raises(ResourceExhausted):
                await leases.extend([living])
            seconds.advance(INTERVAL)
            await watchdog.tick()
        seconds.advance(INTERVAL)
        with pytest.raises(ResourceExhausted):
            await watchdog.tick()
        for _ in range(TTL // INTERVAL - 1):
            seconds.advance(INTERVAL)
            await watchdog.tick()

    seconds.advance(INTERVAL)
    await watchdog.tick()
    assert await replica.store.status(dead.job_id) is JobStatus.RETRYING
    assert await replica.store.status(living.job_id) is JobStatus.RUNNING
