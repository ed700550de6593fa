"""The database works on the next claim while the jobs of a large one are given to their workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.hub import CLAIM_BATCH, READ_LATER_BYTES, ClaimSlot
from pulse_server.jobs.rules import ClaimedJob
from tests.dispatch.hub_under_test import a_session
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job


class Course:
    """Jobs that wait for one worker, and what the hub did: claims, and jobs that it gave out."""

    def __init__(self, replica: StoredReplica, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replica = replica
        self.steps: list[str] = []
        self.fails_at = 0
        claim, publish = replica.claims.claim, replica.claims.publish

        async def seen_claim(*args: Any) -> Sequence[ClaimedJob]:
            self.steps.append("claim")
            if self.steps.count("claim") == self.fails_at:
                raise Unavailable("The database did not answer. Try again.")
            jobs: Sequence[ClaimedJob] = await claim(*args)
            return jobs

        def seen_publish(jobs: Sequence[ClaimedJob], sent_at: int) -> None:
            self.steps.append(f"{len(jobs)} jobs")
            publish(jobs, sent_at)

        monkeypatch.setattr(replica.claims, "claim", seen_claim)
        monkeypatch.setattr(replica.claims, "publish", seen_publish)

    async def run(self, jobs: int, capacity: int, payload: bytes = b"{}") -> Any:
        """Dispatch until there is nothing more to claim. Returns the worker's session."""
        self.ids = await self.replica.store.submit(*[a_job(payload=payload) for _ in range(jobs)])
        session = a_session("A", "email", capacity=capacity)
        self.replica.hub.connect(session, [])
        self.replica.roster.demand.add_work(["email"])
        await self.replica.hub._dispatch(ClaimSlot())
        await asyncio.sleep(0)
        return session


@pytest.fixture
def course(replica: StoredReplica, monkeypatch: pytest.MonkeyPatch) -> Course:
    return Course(replica, monkeypatch)


async def test_next_claim_is_sent_before_the_jobs_of_a_large_one_are_given_out(course: Course) -> None:
    session = await course.run(2 * CLAIM_BATCH + 300, capacity=5 * CLAIM_BATCH)

    full, last_look = f"{CLAIM_BATCH} jobs", ["claim", "0 jobs"]
    assert course.steps == ["claim", "claim", full, "claim", full, "300 jobs", *last_look]
    assert [*session.held] == course.ids, "in the order of their submits"


async def test_slots_are_kept_for_jobs_that_are_not_given_out_yet(course: Course) -> None:
    session = await course.run(2 * CLAIM_BATCH, capacity=CLAIM_BATCH + 200)

    assert course.steps == ["claim", "claim", f"{CLAIM_BATCH} jobs", "200 jobs"]
    assert ([*session.held], session.reserved, session.free) == (course.ids[: CLAIM_BATCH + 200], 0, 0)


async def test_next_claim_that_fails_takes_no_job_of_the_one_before(course: Course) -> None:
    course.fails_at = 2
    session = await course.run(CLAIM_BATCH + 200, capacity=5 * CLAIM_BATCH)

    assert course.steps == ["claim", "claim", f"{CLAIM_BATCH} jobs"]
    assert ([*session.held], session.reserved) == (course.ids[:CLAIM_BATCH], 0)


async def test_large_payloads_count_before_the_next_claim_is_sent(course: Course) -> None:
    payload = b'"' + b"x" * (READ_LATER_BYTES // CLAIM_BATCH) + b'"'
    await course.run(CLAIM_BATCH + 200, capacity=5 * CLAIM_BATCH, payload=payload)

    assert course.steps[:4] == ["claim", f"{CLAIM_BATCH} jobs", "claim", "200 jobs"]


async def test_worker_that_leaves_before_its_jobs_are_given_out_costs_no_attempt(course: Course) -> None:
    """It left while the next claim was being made."""
    hub = course.replica.hub
    claim = course.replica.claims.claim
    session = a_session("A", "email", capacity=5 * CLAIM_BATCH)

    async def leaves(*args: Any) -> Any:
        if course.steps:
            hub.disconnect(session)
        return await claim(*args)

    course.replica.claims.claim = leaves
    await course.replica.store.submit(*[a_job() for _ in range(CLAIM_BATCH + 200)])
    hub.connect(session, [])
    course.replica.roster.demand.add_work(["email"])
    await hub._dispatch(ClaimSlot())
    await asyncio.sleep(0)
    await course.replica.claims.finish_releases(timedelta(seconds=PATIENCE_SECONDS))

    assert {(job.locked_by, job.attempts) for job in await course.replica.jobs()} == {(None, 0)}
