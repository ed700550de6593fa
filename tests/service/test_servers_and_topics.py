"""Servers with their connected workers, and the list of topics."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server import tuning
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.overview import ConnectedWorker, TopicDepth
from pulse_server.service.samples import TOPICS_SAMPLE_AGE
from pulse_server.service.servers import SERVER_FORGOTTEN_AFTER, SERVER_SILENT_ROUNDS, Servers
from pulse_server.service.topics import Topics
from tests.fakes.clock import Seconds
from tests.fakes.overview import InMemoryOverviewRepo
from tests.fakes.replica import Replica

SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Site:
    """One server and its workers."""

    def __init__(self, repo: InMemoryOverviewRepo, name: str) -> None:
        self.workers: list[ConnectedWorker] = []
        self.servers = Servers(repo, name, lambda: self.workers, interval=SECOND)

    def connect(self, worker_id: str) -> None:
        self.workers.append(ConnectedWorker(worker_id, ("email",), 5, NOON))


@pytest.fixture
def repo(replica: Replica) -> InMemoryOverviewRepo:
    return InMemoryOverviewRepo(replica.repo)


@pytest.fixture
def here(repo: InMemoryOverviewRepo) -> Site:
    return Site(repo, "here:1")


@pytest.fixture
def there(repo: InMemoryOverviewRepo) -> Site:
    return Site(repo, "there:1")


async def seen_from(site: Site) -> list[tuple[str, str, int]]:
    return [
        (report.worker_id, report.server, report.holding.count) for report in await site.servers.workers()
    ]


async def test_any_server_answers_for_all(here: Site, there: Site) -> None:
    here.connect("b")
    there.connect("a")
    for site in (here, there):
        await site.servers.record()

    assert await seen_from(here) == await seen_from(there) == [("a", "there:1", 0), ("b", "here:1", 0)]


async def test_server_knows_its_own_workers_before_they_are_stored(here: Site) -> None:
    here.connect("a")

    assert await seen_from(here) == [("a", "here:1", 0)]


async def test_servers_have_a_name_and_a_start_once_they_are_stored(here: Site, there: Site) -> None:
    await there.servers.record()
    servers = await here.servers.servers()
    assert [(server.name, server.started_at is None) for server in servers] == [
        ("here:1", True),
        ("there:1", False),
    ]

    await here.servers.record()
    assert await here.servers.servers() == await there.servers.servers()


async def test_worker_that_is_gone_but_holds_a_job_is_shown_without_a_server(
    replica: Replica, here: Site
) -> None:
    here.connect("a")
    await replica.store.start("a")
    await replica.store.start("gone", topic="sms")

    assert await seen_from(here) == [("a", "here:1", 1), ("gone", "", 1)]


async def test_server_that_died_is_not_shown_once_it_was_silent_for_long_enough(
    replica: Replica, here: Site, there: Site
) -> None:
    there.connect("a")
    await there.servers.record()
    replica.repo.clock.advance(SECOND * (SERVER_SILENT_ROUNDS - 1))
    assert await seen_from(here) == [("a", "there:1", 0)]

    replica.repo.clock.advance(2 * SECOND)
    assert await seen_from(here) == []


async def test_server_that_stops_takes_its_row_away(
    repo: InMemoryOverviewRepo, here: Site, there: Site
) -> None:
    for site in (here, there):
        await site.servers.record()
    await there.servers.leave()

    assert [server.name for _, server in repo.seen.values()] == ["here:1"]


async def test_rows_of_servers_that_died_long_ago_go_when_another_starts(
    replica: Replica, repo: InMemoryOverviewRepo, here: Site, there: Site
) -> None:
    await there.servers.record()
    replica.repo.clock.advance(SERVER_FORGOTTEN_AFTER + SECOND)
    await here.servers.record()

    assert [server.name for _, server in repo.seen.values()] == ["here:1"]


async def test_first_round_that_failed_is_repeated(
    replica: Replica, repo: InMemoryOverviewRepo, here: Site
) -> None:
    replica.repo.is_away = True
    with pytest.raises(Unavailable):
        await here.servers.record()
    replica.repo.is_away = False
    await here.servers.record()

    assert repo.calls["forget_servers"] == 1
    assert len(repo.seen) == 1


# --- topics


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def topics(repo: InMemoryOverviewRepo, clock: Seconds) -> Topics:
    return Topics(repo, clock=clock)


async def test_one_count_serves_everyone_who_asks_at_once(repo: InMemoryOverviewRepo, topics: Topics) -> None:
    samples = await asyncio.gather(*[topics.sample() for _ in range(10)])

    assert repo.calls["topic_depths"] == 1
    assert all(sample is samples[0] for sample in samples)


async def test_count_is_repeated_when_it_is_old(
    repo: InMemoryOverviewRepo, topics: Topics, clock: Seconds
) -> None:
    await topics.sample()
    clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    await topics.sample()

    assert repo.calls["topic_depths"] == 2


async def test_count_that_took_long_serves_for_longer(
    repo: InMemoryOverviewRepo, topics: Topics, clock: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = repo.topic_depths

    async def count_slowly() -> list[TopicDepth]:
        clock.advance(2.0)
        return await count()

    monkeypatch.setattr(repo, "topic_depths", count_slowly)
    await topics.sample()
    clock.advance(2.0 * tuning.SAMPLE_REST - 1)
    await topics.sample()
    assert repo.calls["topic_depths"] == 1

    clock.advance(1)
    await topics.sample()
    assert repo.calls["topic_depths"] == 2


async def test_count_that_failed_is_repeated_for_the_next_caller(
    replica: Replica, repo: InMemoryOverviewRepo, topics: Topics
) -> None:
    replica.repo.is_away = True
    with pytest.raises(Unavailable):
        await topics.sample()
    replica.repo.is_away = False

    assert (await topics.sample()).depths == {}
