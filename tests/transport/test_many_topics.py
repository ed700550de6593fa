"""Thousands of topics and workers: pages, bounded answers, and other calls served in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.base.loops import TURN_VIEWS
from pulse_server.views import rpcs
from tests.rows import each_row
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest

MANY = 3000
INSERT = """
    INSERT INTO pulse.jobs
        (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status)
    SELECT gen_random_uuid(), 'topic-' || lpad(number::text, 5, '0'), '', 0, 5, now(), now(), true, 'PENDING'
    FROM generate_series(1, $1::int) AS number
"""


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", 0 * SECOND)
    monkeypatch.setattr(tuning, "SAMPLE_REST", 0)


@pytest.fixture
async def crowded(server: ServerUnderTest) -> ServerUnderTest:
    await server.table.connection.execute(INSERT, MANY)
    return server


async def pages(server: ServerUnderTest, **request: Any) -> list[pb.ListTopicsResponse]:
    found = [await server.stub.ListTopics(pb.ListTopicsRequest(**request))]
    while token := found[-1].next_page_token:
        found.append(await server.stub.ListTopics(pb.ListTopicsRequest(page_token=token, **request)))
    return found


def names(found: list[pb.ListTopicsResponse]) -> list[str]:
    return [view.topic for page in found for view in page.topics]


async def test_pages_together_are_all_topics_by_name(crowded: ServerUnderTest) -> None:
    await crowded.stub.PauseDispatch(pb.PauseDispatchRequest(topic="topic-00007-and-no-job"))
    async with crowded.worker("w1", topics=["aardvark", "zebra"]):
        found = await pages(crowded, page_size=1000)

    assert [len(page.topics) for page in found] == [1000, 1000, 1000, 3]
    assert names(found) == sorted({*names(found)})
    assert {"aardvark", "topic-00007-and-no-job", "zebra"} < {*names(found)}
    assert {page.total for page in found} == {MANY + 3}
    assert {page.sum.ready for page in found} == {MANY}


async def test_answer_to_a_caller_that_knows_no_pages_is_bounded_and_says_where_to_go_on(
    crowded: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.base.ids.PAGE_BYTES", 100_000)
    first = await crowded.stub.ListTopics(pb.ListTopicsRequest())

    assert 0 < first.ByteSize() <= 100_000
    assert first.next_page_token
    assert len(names(await pages(crowded))) == MANY


async def test_topics_are_found_by_a_part_of_their_name(crowded: ServerUnderTest) -> None:
    found = await pages(crowded, search="-029", page_size=40)

    assert names(found) == [f"topic-{number:05}" for number in range(2900, 3000)]
    assert {page.total for page in found} == {100}


async def test_busiest_topics_come_first(crowded: ServerUnderTest) -> None:
    await crowded.submit_many(5, "topic-02000")
    await crowded.submit_many(3, "topic-00500")
    request = pb.ListTopicsRequest(order=pb.TOPIC_ORDER_BUSIEST, page_size=3)
    found = await crowded.stub.ListTopics(request)

    assert [view.topic for view in found.topics][:2] == ["topic-02000", "topic-00500"]
    assert (len(found.topics), found.total, found.next_page_token) == (3, MANY, "")


async def test_topics_are_listed_by_name(crowded: ServerUnderTest) -> None:
    request = pb.ListTopicsRequest(topics=["topic-00002", "without-jobs"])
    found = await crowded.stub.ListTopics(request)

    assert [(view.topic, view.ready) for view in found.topics] == [("topic-00002", 1), ("without-jobs", 0)]


@each_row("request_", [pb.ListTopicsRequest(page_token="?"), pb.ListTopicsRequest(page_size=-1)])
async def test_page_that_cannot_be_is_refused(
    server: ServerUnderTest, request_: pb.ListTopicsRequest
) -> None:
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        await server.stub.ListTopics(request_)


async def test_no_more_than_a_turn_of_topics_is_converted_before_others_are_served(
    crowded: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 0
    converted: dict[int, int] = {}
    convert: Callable[..., pb.TopicView] = rpcs.topic_view

    def counting(*args: Any, **kwargs: Any) -> pb.TopicView:
        converted[turn] = converted.get(turn, 0) + 1
        return convert(*args, **kwargs)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    monkeypatch.setattr(rpcs, "topic_view", counting)
    counter = asyncio.create_task(count_turns())
    try:
        response = await crowded.stub.ListTopics(pb.ListTopicsRequest())
    finally:
        counter.cancel()

    assert len(response.topics) == MANY
    assert max(converted.values()) <= TURN_VIEWS + 1  # and the sum


async def test_sdk_returns_all_topics_and_workers_in_as_many_calls_as_it_takes(
    crowded: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.base.ids.PAGE_BYTES", 100_000)
    async with (
        pulse.Pulse(crowded.address) as client,
        crowded.worker("w1", topics=[f"own-{number}" for number in range(900)]),
    ):
        assert len(await client.topics()) == MANY + 900
        assert len(await client.topics(search="topic-0299")) == 10
        page = await client.list_topics(limit=10)
        following = await client.list_topics(limit=10, cursor=page.next_cursor)
        assert (len(page), page.total, page.sum.ready) == (10, MANY + 900, MANY)
        assert {topic.topic for topic in page}.isdisjoint(topic.topic for topic in following)
        (worker,) = await client.workers()
        assert (len(worker.topics), worker.topic_count) == (tuning.WORKER_TOPICS_SHOWN, 900)


async def test_workers_come_in_pages(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.ids.PAGE_BYTES", 2000)
    async with server.worker("a"), server.worker("b", topics=["x" * 200, "y" * 200]), server.worker("c"):
        first = await server.stub.ListWorkers(pb.ListWorkersRequest(page_size=2))
        request = pb.ListWorkersRequest(page_size=2, page_token=first.next_page_token)
        second = await server.stub.ListWorkers(request)

    assert [[worker.worker_id for worker in page.workers] for page in (first, second)] == [["a", "b"], ["c"]]
    assert second.next_page_token == ""


async def test_log_names_a_bounded_number_of_a_workers_topics(
    server: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with server.worker("w1", topics=[f"t{number}" for number in range(1000)]):
        pass
    (record,) = [record for record in caplog.records if record.message == "worker_connected"]

    assert len(record.__dict__["topics"]) == tuning.WORKER_TOPICS_SHOWN
    assert record.__dict__["topic_count"] == 1000
