"""A thousand workers with a thousand sets of topics: what one job costs does not grow with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from pulse_server.dispatch.hub import ClaimSlot
from pulse_server.dispatch.workers import Backlog, Session
from pulse_server.jobs.reports import Slots
from pulse_server.jobs.rules import Claim, ClaimedJob
from pulse_server.work.submissions import Submissions
from tests.dispatch.hub_under_test import a_hub, a_session
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job

WORKERS = 1000
# A handful of workers are compared, several times over, as their room changes.
FEW = 120


class WatchedSession(Session):
    """Counts how often anybody asks how much room there is, in all sessions together."""

    looks = 0

    @property
    def free(self) -> int:
        WatchedSession.looks += 1
        return super().free


class Crowd:
    """Workers that found nothing to do when they came. Each wants mail, and a topic of its own."""

    def __init__(
        self, replica: StoredReplica, workers: int = WORKERS, sets: int = WORKERS, capacity: int = 8
    ) -> None:
        self.replica = replica
        self.claims = self.replica.claims
        self.hub = self.replica.hub
        self.submissions = Submissions(self.replica.repo, self.hub, self.replica.publisher)
        self.sessions = [
            WatchedSession(
                f"w{number}",
                frozenset({"mail", f"own-{number % sets}"}),
                capacity,
                speaks_batches=True,
                run_id="",
                backlog=Backlog(lambda: None),
            )
            for number in range(workers)
        ]
        for session in self.sessions:
            self.hub.connect(session, [])

    async def settle(self) -> None:
        await self.hub._dispatch(ClaimSlot())
        self.replica.repo.calls.clear()
        WatchedSession.looks = 0

    def held(self) -> list[int]:
        return [len(session.held) for session in self.sessions]


@pytest.mark.parametrize("sets", [1, 50, WORKERS])
async def test_job_finds_a_worker_by_looking_at_a_few(replica: StoredReplica, sets: int) -> None:
    crowd = Crowd(replica, sets=sets)
    await crowd.settle()

    await crowd.submissions.submit([a_job("mail")])

    assert crowd.replica.repo.calls == ["hand_over_jobs"]
    assert sum(crowd.held()) == 1
    assert WatchedSession.looks <= FEW


async def test_report_of_one_worker_looks_at_no_other(replica: StoredReplica) -> None:
    crowd = Crowd(replica)
    await crowd.settle()
    job = a_job("mail")
    await crowd.submissions.submit([job])
    holder = next(session for session in crowd.sessions if session.held)
    WatchedSession.looks = 0

    crowd.hub.roster.answered(holder.worker_id, [Claim(job.id, holder.worker_id, 1, 1)])
    await crowd.hub._dispatch(ClaimSlot())

    assert WatchedSession.looks <= FEW


async def test_job_that_was_not_handed_over_is_claimed_for_one_group(replica: StoredReplica) -> None:
    """Were all groups that want the topic asked, each job would cost a thousand claims."""
    crowd = Crowd(replica)
    await crowd.settle()
    await crowd.replica.repo.insert_jobs([a_job("mail")])

    crowd.hub.roster.wake({"mail"})
    await crowd.hub._dispatch(ClaimSlot())

    assert sum(crowd.held()) == 1
    assert crowd.replica.repo.calls == ["insert_jobs", "claim_batch"]
    assert WatchedSession.looks <= FEW


async def test_jobs_spread_evenly_over_a_crowd(replica: StoredReplica) -> None:
    crowd = Crowd(replica, workers=100, sets=100)
    await crowd.settle()

    for _ in range(300):
        await crowd.submissions.submit([a_job("mail")])

    assert set(crowd.held()) <= {2, 3, 4}


async def test_batch_fills_every_worker_of_a_crowd(replica: StoredReplica) -> None:
    crowd = Crowd(replica, workers=100, sets=100, capacity=3)
    await crowd.settle()

    await crowd.submissions.submit([a_job("mail") for _ in range(400)])

    assert Counter(crowd.held()) == {3: 100}


async def test_small_group_gets_its_turn_beside_a_large_one_that_never_fills() -> None:
    """Its workers report as fast as they are given jobs, so it always has the most room."""
    large = a_session("large", "mail", "own", capacity=2000)
    small = a_session("small", "mail", capacity=5)
    endless = EndlessClaims()
    hub = a_hub(endless)  # type: ignore[arg-type]
    endless.roster = hub.roster
    hub.connect(large, [])
    hub.connect(small, [])
    running = asyncio.create_task(hub.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await endless.small_was_served.wait()
    running.cancel()


class EndlessClaims:
    """There is always another job, and the large worker is done with its own at once."""

    def __init__(self) -> None:
        self.small_was_served = asyncio.Event()
        self.roster: Any = None
        self._number = 0

    async def claim(self, topics: Collection[str], slots: Slots, levels: Any) -> list[ClaimedJob]:
        await asyncio.sleep(0)
        if "small" in slots.workers:
            self.small_was_served.set()
        jobs = [self._next_job(slots.workers[index]) for index in slots.order]
        loop = asyncio.get_running_loop()
        loop.call_soon(self.roster.settle, [Claim(job.id, "large", 1, 1) for job in jobs])
        return jobs

    def publish(self, jobs: Sequence[ClaimedJob], sent_at: int) -> None:
        return

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]:
        return set(topics)

    def release_soon(self, claims: Sequence[Claim]) -> None:
        return

    def _next_job(self, worker_id: str) -> ClaimedJob:
        self._number += 1
        return ClaimedJob(str(self._number), "mail", b"", 1, 1, 0, 5, None, None, worker_id, False, 0.0)
