"""The verbs for many jobs and for the whole at a glance, against a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse
from pulse import tuning as sdk_tuning
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.rows import each_row
from tests.transport.authorized import PASSWORD, USERS
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.test_rpc_many_jobs import add_dead_letters


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


# --- many jobs


async def test_filters_of_lists_reach_the_server(server: ServerUnderTest, client: pulse.Pulse) -> None:
    await add_dead_letters(server, 4)
    border = (await client.count_jobs(status="DEAD_LETTERED")).counted_at
    late = await client.enqueue("sms")

    async def ids(**which: object) -> set[str]:
        return {job.id async for job in client.iter_jobs(page_size=2, **which)}  # type: ignore[arg-type]

    assert await ids(since=border) == {late.id}
    assert len(await ids(before=border)) == 4
    assert len(await ids(error_contains="no such", status=pulse.JobStatus.DEAD_LETTERED)) == 2
    assert await ids(schedule_id=late.id) == set()
    assert len((await client.list_jobs(topic="mail", before=border, limit=3)).jobs) == 3


@each_row("name", ["topic", "status", "schedule_id", "error_contains"])
async def test_empty_value_is_not_taken_for_anything(client: pulse.Pulse, name: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=f"{name} is empty"):
        await client.count_jobs(**{name: ""})  # type: ignore[misc]  # on purpose


async def test_moment_without_a_time_zone_is_refused(client: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match=r"since=.*has no time zone"):
        await client.list_jobs(since=datetime(2030, 1, 1))


async def test_unknown_filter_is_a_mistake_of_the_caller(client: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="no option 'topicz'"):
        await client.count_jobs(topicz="mail")  # type: ignore[call-arg]  # on purpose


async def test_jobs_are_found_by_prefix(client: pulse.Pulse) -> None:
    job = await client.enqueue("mail")
    assert await client.find_jobs(job.id[:-2]) == [job.id]
    assert await client.find_jobs("00000000") == []
    with pytest.raises(pulse.InvalidArgument, match="xyz"):
        await client.find_jobs("xyz")


async def test_count_then_retry_leaves_later_ones_alone(server: ServerUnderTest, client: pulse.Pulse) -> None:
    await add_dead_letters(server, 1200)
    counted = await client.count_jobs(status="DEAD_LETTERED")
    await add_dead_letters(server, 5)

    which = pulse.JobFilter(status="DEAD_LETTERED", before=counted.counted_at)
    progress = [done async for done in client.retry_matching(attempts=3, **which)]

    assert counted.count == 1200
    assert progress == [500, 1000, 1200]
    assert await server.table.count("status = 'PENDING' AND max_attempts = 8") == 1200
    assert await server.table.count("status = 'DEAD_LETTERED'") == 5


async def test_steps_by_hand_go_on_from_their_cursor(server: ServerUnderTest, client: pulse.Pulse) -> None:
    await server.submit_many(5)
    first = await client.cancel_batch(topic="mail", limit=3, reason="stop")
    second = await client.cancel_batch(topic="mail", limit=3, cursor=first.next_cursor)

    assert (first.changed, second) == (3, pulse.Batch(2, None, action_id=second.action_id))
    assert await server.table.count("last_error = 'stop'") == 3


async def test_no_matching_job_yields_zero(client: pulse.Pulse) -> None:
    assert [done async for done in client.cancel_matching(topic="unknown")] == [0]


async def test_cancel_of_everything_has_to_be_meant(client: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="every job"):
        await client.cancel_batch()


# --- at a glance


async def test_topics_and_workers_are_listed(server: ServerUnderTest, client: pulse.Pulse) -> None:
    async with server.worker("w1", capacity=3) as worker:
        job_id = await server.submit()
        await worker.take_one()
        await server.submit("other")
        topics = {topic.topic: topic for topic in await client.topics()}
        (seen,) = await client.workers()

    assert (topics["mail"].running, topics["mail"].workers, topics["mail"].paused) == (1, 1, False)
    assert topics["other"].ready == 1
    oldest = topics["other"].oldest_ready_at
    assert oldest is not None
    assert abs(datetime.now(UTC) - oldest) < timedelta(minutes=5)
    assert topics["other"].last_hour == pulse.Rates(0, 0, 0, 0)
    assert (seen.worker_id, seen.topics, seen.capacity, seen.held_count) == ("w1", ("mail",), 3, 1)
    assert seen.connected_at is not None
    assert seen.server
    (held,) = seen.held
    assert (held.id, held.topic, held.attempt) == (job_id, "mail", 1)
    assert held.since is not None
    assert held.lease_until is not None


# --- watching


async def next_of(watch: AsyncGenerator[pulse.Transitions, None]) -> pulse.Transitions:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await anext(watch)


async def test_watch_begins_with_an_empty_item_and_then_yields_changes(client: pulse.Pulse) -> None:
    watch = client.watch()
    assert await next_of(watch) == pulse.Transitions((), 0)
    job = await client.enqueue("mail")
    news = await next_of(watch)
    await watch.aclose()

    (change,) = news.transitions
    assert (change.job_id, change.topic, change.status) == (job.id, "mail", pulse.JobStatus.PENDING)
    assert (change.worker_id, change.error, change.attempt) == (None, None, 0)
    assert change.at is not None


async def test_leaving_the_loop_ends_the_watch(server: ServerUnderTest, client: pulse.Pulse) -> None:
    watch = client.watch(topics=["mail"])
    async for _ in watch:
        assert server.app.watchers.is_watched
        break
    await watch.aclose()
    await eventually(lambda: not server.app.watchers.is_watched)


async def test_one_topic_is_not_a_list_of_letters(client: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match=r"topics=\['mail'\]"):
        await next_of(client.watch(topics="mail"))


async def test_watch_continues_after_a_restart_and_marks_the_interruption(
    database_dsn: str, kept_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_tuning, "RECONNECT_LONGEST_SECONDS", 0.2)
    async with server_under_test(database_dsn, grpc_address=kept_address) as first:
        client = pulse.Pulse(kept_address)
        watch = client.watch()
        assert await next_of(watch) == pulse.Transitions((), 0, interrupted=False)
        waiting = asyncio.create_task(next_of(watch))
        await eventually(lambda: bool(first.app.watchers._watchers))
    async with server_under_test(database_dsn, grpc_address=kept_address) as second:
        assert await waiting == pulse.Transitions((), 0, interrupted=True)
        job_id = await second.submit()
        news = await next_of(watch)
        assert ([change.job_id for change in news.transitions], news.interrupted) == ([job_id], False)
        await watch.aclose()
        await client.close()


async def test_watch_of_a_server_that_is_not_there_fails_in_time() -> None:
    async with pulse.Pulse("127.0.0.1:1", timeout=timedelta(seconds=0.5)) as client:
        with pytest.raises(pulse.Unavailable, match="No pulsed answers"):
            await next_of(client.watch())


async def test_server_that_never_answers_a_handshake_is_unreachable_not_overloaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with pulse.Pulse(address, timeout=timedelta(seconds=0.5)) as client:
            with pytest.raises(pulse.Unavailable, match="No pulsed answers"):
                await next_of(client.watch())
            with pytest.raises(pulse.Unavailable, match="No pulsed answers"):
                await client.topics()


async def test_watch_that_is_not_permitted_is_refused_at_once(database_dsn: str) -> None:
    async with (
        server_under_test(database_dsn, users=USERS) as server,
        pulse.Pulse(server.address, user="worker", password=PASSWORD) as client,
    ):
        with pytest.raises(pulse.PermissionDenied, match="may not call WatchJobs"):
            await next_of(client.watch())


async def test_close_of_the_client_ends_the_watch(server: ServerUnderTest) -> None:
    client = pulse.Pulse(server.address)
    watch = client.watch()
    await next_of(watch)
    waiting = asyncio.create_task(next_of(watch))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(pulse.ClientClosed):
        await waiting


# --- blocking


async def test_blocking_verbs_answer(server: ServerUnderTest, threads: ThreadPoolExecutor) -> None:
    await add_dead_letters(server, 3)

    def use() -> None:
        with pulse.SyncPulse(server.address) as p:
            assert p.count_jobs(status="DEAD_LETTERED").count == 3
            assert p.retry_batch(status="DEAD_LETTERED", limit=1).changed == 1
            assert list(p.retry_matching(status="DEAD_LETTERED")) == [2]
            assert p.cancel_batch(topic="mail", limit=1).changed == 1
            assert list(p.cancel_matching(topic="mail")) == [2]
            (found, *_) = p.list_jobs(before=datetime.now(UTC) + timedelta(hours=1))
            assert p.find_jobs(found.id) == [found.id]
            assert [topic.canceled for topic in p.topics()] == [3]
            assert p.workers() == []

    await asyncio.get_running_loop().run_in_executor(threads, use)


async def test_blocking_watch_yields_until_it_is_left(
    server: ServerUnderTest, threads: ThreadPoolExecutor
) -> None:
    welcomed = threading.Event()

    def watch() -> str:
        with pulse.SyncPulse(server.address) as p:
            for news in p.watch(topics=["mail"]):
                welcomed.set()
                for change in news.transitions:
                    return change.job_id
        raise AssertionError("the watch ended by itself")

    watching = asyncio.get_running_loop().run_in_executor(threads, watch)
    await eventually(welcomed.is_set)
    job_id = await server.submit()

    assert await watching == job_id
    await eventually(lambda: not server.app.watchers.is_watched)


async def test_interrupted_watch_ends_at_the_server_too(
    server: ServerUnderTest, threads: ThreadPoolExecutor
) -> None:
    """As by Ctrl-C: the exception comes out of the blocking wait."""

    def watch() -> None:
        with pulse.SyncPulse(server.address) as p:
            news = p.watch()
            next(news)
            thread = p._bridge._thread
            assert thread is not None
            run = thread.run

            def run_until_interrupted(coroutine: Coroutine[Any, Any, Any]) -> object:
                thread.run = run  # type: ignore[method-assign]  # the rest is as ever
                return run(coroutine, 0.01)

            thread.run = run_until_interrupted  # type: ignore[method-assign, assignment]  # this once
            with pytest.raises(TimeoutError):
                next(news)
            assert list(news) == []

    await asyncio.get_running_loop().run_in_executor(threads, watch)
    await eventually(lambda: not server.app.watchers.is_watched)
