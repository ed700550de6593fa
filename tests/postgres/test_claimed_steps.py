"""Jobs that sleeps or signals woke are claimed with their stored steps, which one more statement reads."""

from __future__ import annotations

from typing import Any

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Connections
from pulse_server.jobs import leases
from pulse_server.jobs.rules import Claim, ClaimedJob
from tests.fakes.store import LEASE, a_job, room
from tests.postgres.stepped import StoredSteps


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are sent from here on."""
    sent: list[str] = []
    fetch = Connections.fetch

    async def noted(self: Connections, name: str, *arguments: Any, **options: Any) -> object:
        sent.append(name)
        return await fetch(self, name, *arguments, **options)

    monkeypatch.setattr(Connections, "fetch", noted)
    return sent


async def asleep(stepped: StoredSteps, *values: bytes) -> str:
    """Return a job that has stored steps with these values, and sleeps."""
    claim = await stepped.store.start()
    for number, value in enumerate(values):
        await stepped.step(claim, f"part#{number}", value)
    await stepped.sleep(claim)
    return claim.job_id


async def claim_woken(stepped: StoredSteps, *job_ids: str) -> dict[str, ClaimedJob]:
    for job_id in job_ids:
        await stepped.store.time.make_due(job_id)
    await stepped.store.repo.promote_due(1000)
    jobs = await stepped.store.repo.claim_batch(["email"], room("A", 100), LEASE)
    return {job.id: job for job in jobs}


def names(job: ClaimedJob) -> list[str] | None:
    return None if job.steps is None else [step.name for step in job.steps]


async def test_steps_of_all_woken_jobs_are_read_by_one_statement(
    stepped: StoredSteps, statements: list[str]
) -> None:
    sleepers = [await asleep(stepped, b"1", b"2") for _ in range(3)]
    (plain,) = await stepped.store.submit(a_job())
    statements.clear()
    jobs = await claim_woken(stepped, *sleepers)
    assert [name for name in statements if name != "promote_due"] == ["claim_batch", "list_steps_of_claimed"]
    assert [names(jobs[job_id]) for job_id in sleepers] == [["part#0", "part#1", "sleep"]] * 3
    assert [step.value for step in jobs[sleepers[0]].steps or ()] == [b"1", b"2", None]
    assert jobs[plain].steps is None


async def test_claim_of_jobs_that_never_waited_reads_no_steps(
    stepped: StoredSteps, statements: list[str]
) -> None:
    await stepped.store.submit(a_job())
    statements.clear()
    await stepped.store.claim()
    assert statements == ["claim_batch"]


async def test_steps_that_are_too_large_are_left_to_the_worker(
    stepped: StoredSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MOST_BYTES_OF_A_JOB", 2_000)
    monkeypatch.setattr(leases, "MOST_BYTES", 3_000)
    large = await asleep(stepped, b"x" * 5_000)
    small = [await asleep(stepped, b"x" * 1_000) for _ in range(3)]
    jobs = await claim_woken(stepped, large, *small)
    assert names(jobs[large]) is None
    assert [names(jobs[job_id]) for job_id in sorted(small)] == [["part#0", "sleep"]] * 2 + [None]


async def test_jobs_are_claimed_also_if_their_steps_cannot_be_read(
    stepped: StoredSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await asleep(stepped, b"1")
    fetch = Connections.fetch

    async def failing(self: Connections, name: str, *arguments: Any, **options: Any) -> object:
        if name == "list_steps_of_claimed":
            raise Unavailable("The database did not answer.")
        return await fetch(self, name, *arguments, **options)

    monkeypatch.setattr(Connections, "fetch", failing)
    jobs = await claim_woken(stepped, job_id)
    assert names(jobs[job_id]) is None
    assert await stepped.store.repo.current_claims([Claim(job_id, "A", 1, 2)])
