"""New jobs and free workers: who is found a place, and what becomes of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.hub import ClaimSlot
from pulse_server.dispatch.workers import Session
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.rules import JobStatus
from pulse_server.work.submissions import Submissions
from tests.dispatch.hub_under_test import a_session
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.dispatch import limit_topic
from tests.fakes.replica import RecordedJobRepo, StoredReplica
from tests.fakes.store import a_job


class SlowHandover:
    """Hands over only once the test says so, and then perhaps not at all."""

    def __init__(self, repo: RecordedJobRepo) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._hand_over = repo.hand_over_jobs
        repo.hand_over_jobs = self  # type: ignore[assignment]

    async def __call__(self, *args: Any) -> Any:
        self.is_asked.set()
        await self.may_answer.wait()
        return await self._hand_over(*args)


class Server:
    """A hub that dispatches for real, and submissions in front of it."""

    def __init__(self, replica: StoredReplica) -> None:
        self.replica = replica
        self.repo = replica.repo
        self.hub = self.replica.hub
        self.submissions = Submissions(self.repo, self.hub, self.replica.publisher)

    async def connect(self, worker_id: str, *topics: str, capacity: int = 2) -> Session:
        """A worker that found nothing to do when it came."""
        session = a_session(worker_id, *topics or ("email",), capacity=capacity)
        self.hub.connect(session, [])
        await self.hub._dispatch(ClaimSlot())
        return session

    async def holders(self, *jobs: NewJob) -> list[str | None]:
        return [(await self.replica.store.job(job.id)).locked_by for job in jobs]


@pytest.fixture
def server(replica: StoredReplica) -> Server:
    return Server(replica)


async def sent_to(session: Session) -> list[str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [job.id for job in (await anext(session.deliveries())).jobs]


async def test_job_of_a_limited_topic_is_stored_and_dispatch_is_woken(server: Server) -> None:
    """Whether it may start, only a claim of its own kind knows. ADR-0064"""
    session = await server.connect("w1", "email", "sync")
    limit_topic(server.replica.switches, "sync")
    await server.replica.gate.refresh()
    limited, plain = a_job("sync"), a_job()

    assert await server.submissions.submit([limited]) == [Submitted(limited.id, False)]
    assert (server.repo.calls[-1], session.held) == ("insert_jobs", {})
    assert server.replica.roster.woken[-1] == {"sync"}

    await server.hub._dispatch(ClaimSlot())
    assert server.replica.limits.calls == ["claim_limited"]
    assert await server.submissions.submit([plain]) == [Submitted(plain.id, False, is_taken=True)]


async def test_job_goes_to_a_waiting_worker_without_a_claim(server: Server) -> None:
    session = await server.connect("w1")
    before = list(server.repo.calls)
    job = a_job(payload=b"p", priority=3, metadata={"a": "b"})

    assert await server.submissions.submit([job]) == [Submitted(job.id, False, is_taken=True)]

    delivery = await anext(session.deliveries())
    assert delivery.jobs[0][:10] == (job.id, "email", b"p", 1, 1, 3, 5, {"a": "b"}, None, "w1")
    assert server.repo.calls == [*before, "hand_over_jobs"]


async def test_jobs_of_a_batch_spread_over_the_workers(server: Server) -> None:
    for name in ("w1", "w2"):
        await server.connect(name)
    jobs = [a_job(), a_job()]

    await server.submissions.submit(jobs)

    assert set(await server.holders(*jobs)) == {"w1", "w2"}


async def test_jobs_spread_over_workers_that_want_other_topics_besides(server: Server) -> None:
    await server.connect("w1", "email", "sms", capacity=8)
    await server.connect("w2", "email", capacity=8)
    jobs = [a_job() for _ in range(4)]

    for job in jobs:
        await server.submissions.submit([job])

    assert await server.holders(*jobs) == ["w1", "w2", "w1", "w2"]


async def test_most_urgent_jobs_get_the_places(server: Server) -> None:
    await server.connect("w1", "email", "sms", capacity=2)
    low, high, middle = a_job(priority=-5), a_job("sms", priority=9), a_job()

    await server.submissions.submit([low, high, middle])

    assert await server.holders(low, high, middle) == [None, "w1", "w1"]


async def test_worker_is_never_handed_more_than_it_can_hold(server: Server) -> None:
    session = await server.connect("w1", capacity=2)

    await asyncio.gather(*(server.submissions.submit([a_job()]) for _ in range(5)))
    await server.hub._dispatch(ClaimSlot())

    assert len(session.held) == 2
    assert sum(job.status is JobStatus.RUNNING for job in await server.replica.jobs()) == 2


async def test_places_of_a_handover_under_way_are_not_claimed_for(server: Server) -> None:
    slow, repo = SlowHandover(server.repo), server.repo
    session = await server.connect("w1", capacity=1)
    submitting = asyncio.create_task(server.submissions.submit([a_job()]))
    await slow.is_asked.wait()
    await repo.insert_jobs([a_job("email")])
    server.hub.roster.wake({"email"})

    await server.hub._dispatch(ClaimSlot())
    assert repo.calls.count("claim_batch") == 1  # when the worker came
    slow.may_answer.set()
    await submitting
    await server.hub._dispatch(ClaimSlot())

    assert len(session.held) == 1


async def test_nothing_is_handed_over_while_others_may_wait(server: Server) -> None:
    await server.connect("w1")
    server.hub.roster.wake({"email"})

    await server.submissions.submit([a_job()])

    assert "hand_over_jobs" not in server.repo.calls


@pytest.mark.parametrize("changes", [{"topic": "sms"}, {"delay": timedelta(seconds=1)}])
async def test_job_without_a_free_worker_is_only_stored(server: Server, changes: dict[str, object]) -> None:
    await server.connect("w1")

    await server.submissions.submit([a_job(**changes)])

    assert "hand_over_jobs" not in server.repo.calls


async def test_job_whose_worker_left_meanwhile_goes_back_with_its_attempt(server: Server) -> None:
    slow = SlowHandover(server.repo)
    session = await server.connect("w1")
    job = a_job()
    submitting = asyncio.create_task(server.submissions.submit([job]))
    await slow.is_asked.wait()
    server.hub.disconnect(session)
    slow.may_answer.set()

    await submitting
    await server.hub.drain(timedelta(seconds=5))

    stored = await server.replica.store.job(job.id)
    assert (stored.status, stored.attempts, stored.ready) == (JobStatus.RETRYING, 0, True)


async def test_failed_handover_leaves_the_place_free(server: Server) -> None:
    session = await server.connect("w1", capacity=1)
    server.repo.is_away = True
    with pytest.raises(Unavailable):
        await server.submissions.submit([a_job()])
    server.repo.is_away = False

    job = a_job()
    await server.submissions.submit([job])

    assert await sent_to(session) == [job.id]


async def test_same_job_twice_in_a_batch_is_handed_over_at_most_once(server: Server) -> None:
    session = await server.connect("w1")
    job = a_job()

    answers = await server.submissions.submit([job, job])
    await server.hub._dispatch(ClaimSlot())

    assert answers == [Submitted(job.id, False), Submitted(job.id, True)]
    assert await sent_to(session) == [job.id]


async def test_full_server_announces_a_new_job_to_the_others(server: Server) -> None:
    await server.connect("w1", capacity=1)

    await server.submissions.submit([a_job()])
    await server.submissions.submit([a_job()])

    assert server.replica.line.topics == [{"email"}]
