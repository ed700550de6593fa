"""Explanations by what the servers know of their workers: slots that take no jobs, and who connected when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_server.database.connections import Database
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import FROZEN, QUIET, ConnectedWorker, DispatchState, WorkerState
from pulse_server.settings import Settings
from pulse_server.views import explanations
from pulse_server.views.explanations import Explanations
from pulse_server.views.gates import Explanation
from pulse_server.views.servers import Servers
from pulse_server.wakeups.line import NoWakeupLine
from tests.fakes.store import Store, a_job
from tests.postgres.sessions import Connection

NOW = datetime.now(UTC)
SETTINGS = Settings("", None)


def a_worker(name: str = "w1", *topics: str, **changes: Any) -> ConnectedWorker:
    return ConnectedWorker(name, topics or ("email",), 10, NOW)._replace(**changes)


class Explaining:
    """Explanations for workers that a test names, on one server with a clock of its own."""

    def __init__(self, dsn: str) -> None:
        self.workers: list[ConnectedWorker] = []
        self.roster = roster = Roster(timedelta(seconds=30), NoWakeupLine())
        self.limited = roster.limited
        self.seconds = 0.0
        self.look_seconds = 0.0
        self.lines: list[Sequence[str]] = []
        self.database = Database(dsn)
        servers = Servers(self.database, "here", self._connected, interval=timedelta(seconds=1))
        self.reads = Explanations(self.database, servers, roster, SETTINGS, clock=lambda: self.seconds)
        ahead = self.reads.jobs_ahead

        async def counted(topics: Sequence[str]) -> list[tuple[str, str]]:
            self.lines.append(topics)
            return await ahead(topics)

        self.reads.jobs_ahead = counted  # type: ignore[method-assign]

    def _connected(self) -> list[ConnectedWorker]:
        self.seconds += self.look_seconds
        return list(self.workers)

    async def of(self, job_id: str) -> Explanation:
        (found,) = await self.reads.of_jobs([job_id])
        return found


@pytest.fixture
async def explaining(shared_dsn: str, connection: Connection) -> AsyncIterator[Explaining]:
    explaining = Explaining(shared_dsn)
    yield explaining
    await explaining.database.close()


async def test_slots_in_which_jobs_would_wait_count_where_jobs_may_wait(
    explaining: Explaining, store: Store
) -> None:
    """A worker that runs one job at a time has ten slots. Jobs with a rate or an order do not wait in it."""
    await store.start("w1")
    (job_id,) = await store.submit(a_job())
    explaining.workers = [a_worker("w1", "email", "sms", concurrency=1)]
    both = {"email": "email", "sms": "sms"}
    for limited, ahead, is_full in (
        ({}, {"email"}, False),
        ({"email": "email"}, {"email"}, False),
        ({"email": "email"}, set(), True),
        (both, {"email"}, True),
        (both, {"email", "sms"}, False),
    ):
        explaining.limited.replace(limited, frozenset(ahead))
        found = await explaining.of(job_id)
        assert (found.brief == "workers full: 1 of 1") == is_full, (limited, ahead, found)


async def test_frozen_worker_has_one_slot_and_is_named(explaining: Explaining, store: Store) -> None:
    await store.start("w1")
    (job_id,) = await store.submit(a_job())
    explaining.workers = [a_worker(hindrance=FROZEN)]

    found = await explaining.of(job_id)

    assert (found.cause, found.brief) == ("workers_full", "workers full: 1 of 1, 1 may be frozen")


async def test_jobs_before_a_job_of_a_limited_topic_are_counted(
    explaining: Explaining, store: Store, connection: Connection
) -> None:
    await connection.execute("INSERT INTO pulse.pools (name, \"limit\", held) VALUES ('email', 1, 1)")
    await connection.execute("INSERT INTO pulse.limit_policies (topic, pool) VALUES ('email', 'email')")
    *_, last = await store.submit(*(a_job() for _ in range(3)))
    explaining.workers = [a_worker()]

    found = await explaining.of(last)

    assert found.cause == "topic_limit"
    assert found.sentence.endswith("2 jobs come first.")


async def test_quieted_worker_beside_a_full_one_is_named(explaining: Explaining, store: Store) -> None:
    await store.start("w1")
    (job_id,) = await store.submit(a_job())
    explaining.workers = [a_worker("w1")._replace(capacity=1), a_worker("w2", run_id="run-2")]
    state = WorkerState(QUIET, "memory grows", NOW, "ada")
    explaining.roster.switch(DispatchState(workers={("w2", "run-2"): state}))

    found = await explaining.of(job_id)

    assert (found.cause, found.brief) == ("workers_full", "workers full: 1 of 1")
    assert "w2 has been quiet since" in found.sentence
    assert "by ada: memory grows." in found.sentence


async def test_worker_with_unlisted_topics_may_take_the_topic(explaining: Explaining, store: Store) -> None:
    (job_id,) = await store.submit(a_job())
    explaining.workers = [a_worker("w1", "sms", topics_left_out=5)]

    found = await explaining.of(job_id)

    assert (found.cause, found.brief) == ("", "its workers are not known")


async def test_worker_that_connected_after_the_cached_look_is_not_gone(
    explaining: Explaining, store: Store, connection: Connection
) -> None:
    """A look that took a second is cached for 20."""
    explaining.look_seconds = 1
    (warm_up,) = await store.submit(a_job("sms"))
    await explaining.of(warm_up)
    claim = await store.start("new")
    explaining.workers = [a_worker("new")]
    explaining.seconds += 9
    for age, cause in ((5, ""), (15, "worker_gone")):
        await connection.execute(
            "UPDATE pulse.jobs SET lease_until = clock_timestamp() + $1::interval WHERE id = $2",
            *(SETTINGS.lease_ttl - timedelta(seconds=age), claim.job_id),
        )
        assert (await explaining.of(claim.job_id)).cause == cause


async def test_call_for_many_topics_looks_for_the_jobs_ahead_of_a_few(
    explaining: Explaining, store: Store
) -> None:
    topics = [f"topic-{number:02}" for number in range(3 * explanations.MOST_LOOKS_AHEAD)]
    jobs = [a_job(topic, priority=priority) for topic in (*topics, topics[-1]) for priority in (1, 0)]
    await store.submit(*jobs)
    explaining.workers = [a_worker(topic, topic, capacity=0) for topic in topics]

    found = await explaining.reads.of_jobs([job.id for job in jobs if not job.priority])

    assert len(explaining.lines) == explanations.MOST_LOOKS_AHEAD
    assert explaining.lines[0] == (topics[-1],), "the topic with the most jobs comes first"
    assert {one.cause for one in found} == {"outranked", "workers_full"}


class Walked(tuple[str, ...]):
    """The topics of a worker, which count how often they are walked."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


async def test_topics_of_workers_are_walked_once_for_all_jobs(explaining: Explaining, store: Store) -> None:
    jobs = [a_job(topic) for topic in ("email", "sms") for _ in range(20)]
    await store.submit(*jobs)
    topics = Walked(("email", "sms"))
    explaining.workers = [a_worker(f"w{number}", capacity=0, topics=topics) for number in range(5)]

    await explaining.reads.of_jobs([job.id for job in jobs])

    assert topics.walks == 1
    assert explaining.lines == [("email", "sms")]
