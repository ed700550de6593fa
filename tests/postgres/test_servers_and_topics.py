"""Servers with their connected workers, and the list of topics."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable
from pulse_server.base.sharing import TOPICS_SAMPLE_AGE
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.views.servers import SERVER_FORGOTTEN_AFTER, SERVER_SILENT_ROUNDS
from pulse_server.views.statistics import TopicDepth
from tests.calls import Calls
from tests.postgres.glance import Glance, servers_on

SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Site:
    """One server and its workers."""

    def __init__(self, glance: Glance, name: str) -> None:
        self.workers: list[ConnectedWorker] = []
        self.servers = servers_on(glance.database, name, lambda: self.workers)

    def connect(self, worker_id: str) -> None:
        self.workers.append(ConnectedWorker(worker_id, ("email",), 5, NOON))


@pytest.fixture
def here(glance: Glance) -> Site:
    return Site(glance, "here:1")


@pytest.fixture
def there(glance: Glance) -> Site:
    return Site(glance, "there:1")


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
    glance: Glance, here: Site
) -> None:
    here.connect("a")
    await glance.store.start("a")
    await glance.store.start("gone", topic="sms")

    assert await seen_from(here) == [("a", "here:1", 1), ("gone", "", 1)]


async def test_server_that_died_is_not_shown_once_it_was_silent_for_long_enough(
    glance: Glance, here: Site, there: Site
) -> None:
    there.connect("a")
    await there.servers.record()
    await glance.elapse(SECOND * (SERVER_SILENT_ROUNDS - 1))
    assert await seen_from(here) == [("a", "there:1", 0)]

    await glance.elapse(2 * SECOND)
    assert await seen_from(here) == []


async def test_server_that_stops_takes_its_row_away(glance: Glance, here: Site, there: Site) -> None:
    for site in (here, there):
        await site.servers.record()
    await there.servers.leave()

    assert await glance.server_names() == ["here:1"]


async def test_rows_of_servers_that_died_long_ago_go_when_another_starts(
    glance: Glance, here: Site, there: Site
) -> None:
    await there.servers.record()
    await glance.elapse(SERVER_FORGOTTEN_AFTER + SECOND)
    await here.servers.record()

    assert await glance.server_names() == ["here:1"]


async def test_first_round_that_failed_is_repeated(
    glance: Glance, here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgets = Calls(monkeypatch, here.servers, "forget_servers")
    forgets.is_away = True
    with pytest.raises(Unavailable):
        await here.servers.record()
    forgets.is_away = False
    await here.servers.record()

    assert forgets.count == 1
    assert await glance.server_names() == ["here:1"]


# --- topics


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, glance: Glance) -> Calls:
    return Calls(monkeypatch, glance.topics, "topic_depths")


async def test_one_count_serves_everyone_who_asks_at_once(counts: Calls, glance: Glance) -> None:
    samples = await asyncio.gather(*[glance.topics.sample() for _ in range(10)])

    assert counts.count == 1
    assert all(sample is samples[0] for sample in samples)


async def test_count_is_repeated_when_it_is_old(counts: Calls, glance: Glance) -> None:
    await glance.topics.sample()
    glance.clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    await glance.topics.sample()

    assert counts.count == 2


async def test_count_that_took_long_serves_for_longer(
    counts: Calls, glance: Glance, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = glance.topics.topic_depths

    async def count_slowly() -> list[TopicDepth]:
        glance.clock.advance(2.0)
        return await count()

    monkeypatch.setattr(glance.topics, "topic_depths", count_slowly)
    await glance.topics.sample()
    glance.clock.advance(2.0 * tuning.SAMPLE_REST - 1)
    await glance.topics.sample()
    assert counts.count == 1

    glance.clock.advance(1)
    await glance.topics.sample()
    assert counts.count == 2


async def test_count_that_failed_is_repeated_for_the_next_caller(counts: Calls, glance: Glance) -> None:
    counts.is_away = True
    with pytest.raises(Unavailable):
        await glance.topics.sample()
    counts.is_away = False

    assert (await glance.topics.sample()).depths == {}
