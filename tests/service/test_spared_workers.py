"""Beats that could not be replica are made known to all servers, for the workers concerned and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.claims import Claims, SparedWorkers
from pulse_server.jobs.reports import BeatAnswer, ExtendedLeases
from pulse_server.jobs.rules import Claim
from pulse_server.work.attempts import Leases
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job
from tests.fakes.topic_settings import no_rules

TTL = timedelta(seconds=30)


@pytest.fixture
def spared(replica: StoredReplica) -> SparedWorkers:
    return SparedWorkers(replica.repo, TTL)


@pytest.fixture
def claims(replica: StoredReplica, spared: SparedWorkers) -> Claims:
    return Claims(replica.repo, replica.limits, replica.publisher, spared, TTL)


@pytest.fixture
def leases(replica: StoredReplica, spared: SparedWorkers) -> Leases:
    return a_lease_service(replica, spared)


def a_lease_service(replica: StoredReplica, spared: SparedWorkers) -> Leases:
    return Leases(replica.repo, replica.publisher, spared, no_rules(), TTL, failed=lambda: None)


async def held_by(replica: StoredReplica, *worker_ids: str) -> list[Claim]:
    await replica.store.submit(*[a_job() for _ in worker_ids])
    return [claim for worker_id in worker_ids for claim in await replica.store.claim(worker_id)]


async def test_nothing_is_recorded_while_beats_are_stored(
    replica: StoredReplica, leases: Leases, spared: SparedWorkers
) -> None:
    held, lost = await held_by(replica, "A", "B")
    await replica.repo.complete_jobs([lost])
    await leases.extend([held, lost])
    replica.repo.calls.clear()
    await spared.record()

    assert replica.repo.calls == []


async def test_workers_of_a_statement_that_failed_are_spared(
    replica: StoredReplica, leases: Leases, spared: SparedWorkers
) -> None:
    held = await held_by(replica, "A", "B", "C")
    replica.repo.is_away = True
    with pytest.raises(Unavailable):
        await leases.extend(held[:2])
    with pytest.raises(Unavailable):  # it is tried again until it is done
        await spared.record()
    replica.repo.is_away = False
    await spared.record()

    assert await replica.spared() == {"A", "B"}


async def test_only_the_worker_of_a_locked_row_is_spared_and_the_reaper_does_not_win_over_its_next_beat(
    replica: StoredReplica, leases: Leases, spared: SparedWorkers
) -> None:
    locked, dead = await held_by(replica, "A", "B")
    async with replica.locked(locked.job_id):
        assert await leases.extend([locked, dead]) == BeatAnswer([], [locked])
    await spared.record()
    assert await replica.spared() == {"A"}

    await replica.store.time.lapse_leases(locked.job_id, dead.job_id)
    assert [entry.claim for entry in await replica.repo.reap_expired(10)] == [dead]
    assert await leases.extend([locked]) == BeatAnswer([], [])


async def test_worker_that_cannot_release_a_locked_job_is_spared(
    replica: StoredReplica, claims: Claims, spared: SparedWorkers
) -> None:
    locked, free = await held_by(replica, "A", "B")
    async with replica.locked(locked.job_id):
        assert (await claims.release([locked, free])).locked == [locked]
    await spared.record()

    assert await replica.spared() == {"A"}


async def test_worker_is_spared_while_its_beats_are_under_way_for_long(
    replica: StoredReplica, leases: Leases, spared: SparedWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that such a statement fails, another server may have reaped the job."""
    monkeypatch.setattr("pulse_server.work.attempts.BEAT_SLOW", timedelta(0))
    (held,) = await held_by(replica, "A")
    arrived, go = asyncio.Event(), asyncio.Event()
    extend = replica.repo.extend_leases

    async def slow(*args: object) -> ExtendedLeases:
        arrived.set()
        await go.wait()
        return await extend(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(replica.repo, "extend_leases", slow)
    beating = asyncio.create_task(a_lease_service(replica, spared).extend([held]))
    await arrived.wait()
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await replica.spared():
            await asyncio.sleep(0)
            await spared.record()
    go.set()

    assert await beating == BeatAnswer([], [])
    assert await replica.spared() == {"A"}


@pytest.mark.parametrize("is_refused", [False, True], ids=["stored", "refused"])
async def test_second_record_returns_no_sooner_than_the_first_is_stored(
    replica: StoredReplica, spared: SparedWorkers, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """The watchdog reaps after its own record, while the statement of the loop may be on its way."""
    spare_workers, sent, answered = replica.repo.spare_workers, asyncio.Event(), asyncio.Event()
    stored: list[str] = []

    async def slow(worker_ids: Collection[str], lease: timedelta) -> None:
        is_first = not sent.is_set()
        sent.set()
        await answered.wait()
        if is_first and is_refused:
            raise Unavailable("The database did not answer.")
        await spare_workers(worker_ids, lease)
        stored.extend(worker_ids)

    monkeypatch.setattr(replica.repo, "spare_workers", slow)
    spared.spare(["A"])
    of_the_loop = asyncio.create_task(spared.record())
    await sent.wait()
    of_the_watchdog = asyncio.create_task(spared.record())
    for _ in range(10):  # it would return at once
        await asyncio.sleep(0)
    assert not of_the_watchdog.done()

    answered.set()
    await of_the_watchdog
    assert stored == ["A"]
    assert (
        isinstance((await asyncio.gather(of_the_loop, return_exceptions=True))[0], Unavailable) is is_refused
    )


async def test_no_more_workers_wait_to_be_recorded_than_allowed(
    replica: StoredReplica, spared: SparedWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.claims.SPARED_WORKERS", 2)
    spared.spare(["A", "B"])
    spared.spare(["A", "C"])
    await spared.record()

    assert await replica.spared() == {"A", "C"}
