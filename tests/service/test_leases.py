"""Leases: heartbeats extend them, and find those that are lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.jobs.reports import BeatAnswer, ExtendedLeases
from pulse_server.jobs.rules import Claim
from pulse_server.work.attempts import Leases
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job
from tests.fakes.topic_settings import no_rules

TTL = timedelta(seconds=77)
NOTHING_LOST = BeatAnswer([], [])


@pytest.fixture
def leases(replica: StoredReplica) -> Leases:
    return a_lease_service(replica)


def a_lease_service(replica: StoredReplica) -> Leases:
    return Leases(
        replica.repo, replica.publisher, replica.spared_workers, no_rules(), TTL, failed=lambda: None
    )


async def test_beat_returns_the_claims_that_are_lost(replica: StoredReplica, leases: Leases) -> None:
    await replica.store.submit(a_job(), a_job(), a_job())
    held, finished, other = await replica.store.claim(count=3)
    await replica.repo.complete_jobs([finished])

    answer = await leases.extend([finished, held, other._replace(worker_id="B")])

    assert answer == BeatAnswer(lost=[finished, other._replace(worker_id="B")], unknown=[])


async def test_beat_extends_by_one_lease(replica: StoredReplica, leases: Leases) -> None:
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)

    assert await leases.extend([claim]) == NOTHING_LOST

    lease_until = (await replica.store.job(claim.job_id)).lease_until
    assert lease_until is not None
    assert timedelta(0) < lease_until - datetime.now(UTC) <= TTL


async def test_heartbeat_without_claims_makes_no_query(replica: StoredReplica, leases: Leases) -> None:
    assert await leases.extend([]) == NOTHING_LOST
    assert replica.repo.calls == []


async def test_large_beat_goes_out_in_batches(
    replica: StoredReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.work.attempts.HEARTBEAT_BATCH", 2)
    await replica.store.submit(*[a_job() for _ in range(5)])
    held = await replica.store.claim(count=5)
    await replica.repo.cancel_jobs([held[4].job_id], "")
    replica.repo.calls.clear()

    answer = await a_lease_service(replica).extend(held)

    assert answer == BeatAnswer(lost=[held[4]], unknown=[])
    assert replica.repo.calls == ["extend_leases"] * 3 + ["current_claims"]


async def test_heartbeats_do_not_wait_while_a_lost_claim_is_looked_up(
    replica: StoredReplica, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.store.submit(a_job(), a_job())
    finished, held = await replica.store.claim(count=2)
    await replica.repo.complete_jobs([finished])
    is_looking, may_answer = asyncio.Event(), asyncio.Event()

    async def no_claims(_claims: object) -> set[Claim]:
        is_looking.set()
        await may_answer.wait()
        return set()

    monkeypatch.setattr(replica.repo, "current_claims", no_claims)
    lost = asyncio.create_task(leases.extend([finished]))
    await is_looking.wait()
    assert await leases.extend([held]) == NOTHING_LOST
    assert not lost.done()
    may_answer.set()
    assert await lost == BeatAnswer(lost=[finished], unknown=[])


async def test_confirmation_that_comes_too_late_is_unknown(replica: StoredReplica) -> None:
    held = await replica.store.start(confirms=True)
    service = a_lease_service(replica)

    assert await service.extend([held], start_within=timedelta(0)) == BeatAnswer(lost=[], unknown=[held])
    assert await service.extend([held], start_within=TTL) == BeatAnswer(lost=[], unknown=[])


async def test_confirmation_that_is_committed_too_late_costs_no_attempt(
    replica: StoredReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement ran in time; its commit waited for a slow disk or a standby."""
    held = await replica.store.start(confirms=True)
    extend, now = replica.repo.extend_leases, 0.0

    async def slow_commit(*args: Any) -> ExtendedLeases:
        nonlocal now
        answer = await extend(*args)
        now += TTL.total_seconds()
        return answer

    monkeypatch.setattr(replica.repo, "extend_leases", slow_commit)
    monkeypatch.setattr("pulse_server.work.attempts.lease_clock", lambda: now)

    answer = await a_lease_service(replica).extend([held], start_within=TTL)

    assert answer == BeatAnswer(lost=[], unknown=[held])
    assert not (await replica.store.job(held.job_id)).delivered


async def test_outage_loses_no_lease_but_is_raised(replica: StoredReplica, leases: Leases) -> None:
    claim = await replica.store.start()
    replica.repo.is_away = True

    with pytest.raises(Unavailable):
        await leases.extend([claim])


async def test_heartbeat_past_the_time_limit_is_lost_and_does_not_spare_its_worker(
    replica: StoredReplica,
) -> None:
    rules = no_rules(attempt_timeout=timedelta(seconds=1))
    leases = Leases(replica.repo, replica.publisher, replica.spared_workers, rules, TTL, failed=lambda: None)
    claim = await replica.store.start()
    assert await leases.extend([claim]) == NOTHING_LOST

    await replica.connection.execute(
        "UPDATE pulse.jobs "
        "SET started_at = started_at - $1::interval, lease_until = lease_until - $1::interval",
        TTL + timedelta(seconds=2),
    )
    assert await leases.extend([claim]) == BeatAnswer(lost=[claim], unknown=[])
    await replica.spared_workers.record()
    assert await replica.spared() == set()
