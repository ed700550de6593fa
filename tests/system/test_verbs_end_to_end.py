"""Every verb, from an application through pulsed and Postgres to a handler in another process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.postgres_cluster import Databases
from tests.system.stage import Stage, finished
from tests.system.worker_program import THREADS_THAT_MEET, Errand

TOPICS = (
    "work",
    "sync-work",
    "meet",
    "describe",
    "gated",
    "patient",
    "patient-thread",
    "fail-once",
    "retry-soon",
    "discard",
)


@pytest.fixture(scope="module")
def module_stage(
    databases: Databases, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with databases.temporary(template_database) as dsn:
        stage = Stage(dsn, tmp_path_factory.mktemp("verbs"))
        stage.start_worker(stage.start_pulsed().address, *TOPICS)
        yield stage
        stage.close()


@pytest.fixture
def stage(module_stage: Stage) -> Stage:
    """One stage for all tests of this module: each has its own jobs."""
    return module_stage


@pytest.fixture
def address(stage: Stage) -> str:
    return next(server.address for server in stage.servers)


@pytest.fixture
async def p(address: str) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(address, timeout=timedelta(seconds=20)) as client:
        yield client


async def test_handler_gets_what_was_enqueued(p: pulse.Pulse, stage: Stage) -> None:
    handle = await p.enqueue(
        "describe",
        {"name": "Ada", "times": 3},
        priority=7,
        max_attempts=9,
        metadata={"tenant": "blue"},
        key="describe-1",
    )
    job = await finished(p, handle.id)
    (start,) = stage.executions(handle.id)
    assert start.attempt == 1
    assert start.facts == {
        "name": "Ada",
        "times": 3,
        "max_attempts": 9,
        "priority": 7,
        "metadata": {"tenant": "blue"},
        "key": "describe-1",
    }
    assert (job.status, job.attempts, job.args) == ("COMPLETED", 1, {"name": "Ada", "times": 3})
    assert (job.last_error, job.history, job.lease_until) == (None, (), None)
    assert job.submitted_at is not None
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.submitted_at <= job.started_at <= job.finished_at


async def test_job_enqueued_through_its_handler_arrives_typed(p: pulse.Pulse, stage: Stage) -> None:
    async def describe(name: str, *, ctx: pulse.Context, times: int = 1) -> None: ...

    job = p.register("describe", describe)
    one = await job.options(priority=3, metadata={"from": "options"}).enqueue("Grace", times=2)
    many = await job.enqueue_many([{"name": "a"}, {"name": "b", "times": 5}])
    for handle in (one, *many):
        assert (await finished(p, handle.id)).status is pulse.JobStatus.COMPLETED
    facts = [stage.executions(handle.id)[0].facts for handle in (one, *many)]
    assert [(fact["name"], fact["times"]) for fact in facts] == [("Grace", 2), ("a", 1), ("b", 5)]
    assert (facts[0]["priority"], facts[0]["metadata"]) == (3, {"from": "options"})


async def test_each_of_many_runs_once_and_handles_keep_their_order(p: pulse.Pulse, stage: Stage) -> None:
    items = [Errand(name=f"many-{number}") for number in range(1500)]
    handles = await p.enqueue_many("work", items)
    await eventually(lambda: all(stage.by_job(handles).values()), "all of them have run")
    starts = stage.by_job(handles)
    assert [[start.name for start in starts[handle.id]] for handle in handles] == [
        [item.name] for item in items
    ]


async def test_key_answers_with_the_first_job(p: pulse.Pulse, stage: Stage) -> None:
    first = await p.enqueue("work", Errand("once"), key="the-key")
    again = await p.enqueue("work", Errand("once"), key="the-key")
    assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
    with pytest.raises(pulse.AlreadyExists, match=first.id):
        await p.enqueue("work", Errand("other"), key="the-key")
    await finished(p, first.id)
    assert (await p.enqueue("work", Errand("once"), key="the-key")).duplicate
    assert len(stage.executions(first.id)) == 1


async def test_delayed_job_does_not_start_before_its_time(p: pulse.Pulse) -> None:
    delayed = await p.enqueue("work", delay=timedelta(milliseconds=400))
    at = datetime.now(UTC) + timedelta(milliseconds=400)
    planned = await p.enqueue("work", run_at=at)
    job = await finished(p, delayed.id)
    assert job.started_at is not None
    assert job.submitted_at is not None
    assert job.started_at >= job.submitted_at + timedelta(milliseconds=400)
    job = await finished(p, planned.id)
    assert job.started_at is not None
    assert job.started_at >= at


async def test_higher_priority_runs_first(p: pulse.Pulse, stage: Stage, address: str) -> None:
    """One handler at a time, and it is busy while the others are enqueued."""
    gate = stage.gate("priority")
    await stage.worker(address, "one-by-one=gated", concurrency=1)
    busy = await p.enqueue("one-by-one", Errand("busy", gate=gate))
    await stage.started(busy.id)
    handles = [
        await p.enqueue("one-by-one", Errand(name, gate=gate), priority=priority)
        for name, priority in (("low", -5), ("first", 0), ("second", 0), ("high", 5))
    ]
    stage.open(gate)
    for handle in handles:
        await finished(p, handle.id)
    order = [start.name for start in stage.executions() if start.topic == "one-by-one"]
    assert order == ["busy", "high", "first", "second", "low"]


async def test_lists_show_jobs_by_topic_and_status(p: pulse.Pulse) -> None:
    handles = await p.enqueue_many("without-workers", range(25))
    await p.cancel(handles[0].id)
    newest_first = [handle.id for handle in reversed(handles)]
    page = await p.list_jobs(topic="without-workers", limit=10)
    assert [job.id for job in page] == newest_first[:10]
    everything = [job.id async for job in p.iter_jobs(topic="without-workers", page_size=7)]
    assert everything == newest_first
    pending = p.iter_jobs(topic="without-workers", status=pulse.JobStatus.PENDING)
    assert [job.id async for job in pending] == newest_first[:-1]
    canceled = await p.list_jobs(topic="without-workers", status="CANCELED")
    assert [job.id for job in canceled] == [handles[0].id]


@pytest.mark.parametrize("topic", ["patient", "patient-thread"])
async def test_handler_of_a_canceled_job_is_stopped(p: pulse.Pulse, stage: Stage, topic: str) -> None:
    handle = await p.enqueue(topic)
    await stage.started(handle.id)
    await p.cancel(handle.id, "changed our minds")
    await stage.wrote(handle.id, "cancelled")
    job = await p.get_job(handle.id)
    assert (job.status, job.attempts, job.last_error) == ("CANCELED", 1, "changed our minds")
    assert [(past.attempt, past.outcome) for past in job.history] == [(1, "canceled")]
    assert len(stage.executions(handle.id)) == 1


async def test_dead_letter_runs_again_when_it_is_retried(p: pulse.Pulse, stage: Stage) -> None:
    handle = await p.enqueue("fail-once", max_attempts=1)
    job = await finished(p, handle.id)
    assert (job.status, job.attempts) == ("DEAD_LETTERED", 1)
    assert job.last_error is not None
    assert job.last_error.startswith("RuntimeError: the first attempt fails")
    with pytest.raises(pulse.InvalidTransition):
        await p.cancel(handle.id)
    assert (await p.retry(handle.id, attempts=2)).status is pulse.JobStatus.PENDING
    again = await finished(p, handle.id)
    assert (again.status, again.attempts, again.max_attempts) == ("COMPLETED", 2, 3)
    assert again.last_error == job.last_error
    assert [(past.attempt, past.outcome) for past in again.history] == [(1, "failed")]
    assert [start.attempt for start in stage.executions(handle.id)] == [1, 2]


async def test_handler_chooses_when_it_runs_again(p: pulse.Pulse, stage: Stage) -> None:
    handle = await p.enqueue("retry-soon")
    job = await finished(p, handle.id)
    assert (job.status, job.attempts, job.last_error) == ("COMPLETED", 2, "not yet")
    (past,) = job.history
    assert (past.attempt, past.outcome, past.error) == (1, "failed", "not yet")
    assert past.ended_at is not None
    assert job.started_at is not None
    waited = job.started_at - past.ended_at
    # The usual backoff is a second. It runs sooner, because the promoter sleeps until the next due job.
    assert waited >= timedelta(milliseconds=50)
    assert [start.attempt for start in stage.executions(handle.id)] == [1, 2]


async def test_discarded_job_goes_to_the_dead_letters_at_once(p: pulse.Pulse, stage: Stage) -> None:
    handle = await p.enqueue("discard", max_attempts=5)
    job = await finished(p, handle.id)
    assert (job.status, job.attempts, job.last_error) == ("DEAD_LETTERED", 1, "discarded by the test")
    assert [past.outcome for past in job.history] == ["discarded"]
    assert len(stage.executions(handle.id)) == 1


async def test_arguments_that_do_not_fit_fail_the_attempt_with_the_reason(
    p: pulse.Pulse, stage: Stage
) -> None:
    wrong_type = await p.enqueue("work", {"name": "x", "seconds": "soon"}, max_attempts=1)
    no_json = await p.enqueue("work", b"\xff{", max_attempts=1)
    job = await finished(p, wrong_type.id)
    assert job.status is pulse.JobStatus.DEAD_LETTERED
    assert job.last_error is not None
    assert "$.seconds" in job.last_error
    assert (await finished(p, no_json.id)).status is pulse.JobStatus.DEAD_LETTERED
    assert not stage.executions(wrong_type.id) + stage.executions(no_json.id)


async def test_sync_handlers_run_at_the_same_time(p: pulse.Pulse) -> None:
    """Each of them waits for the others: run one after the other, they would never end."""
    handles = await p.enqueue_many("meet", [None] * THREADS_THAT_MEET)
    for handle in handles:
        assert (await finished(p, handle.id)).status is pulse.JobStatus.COMPLETED


async def test_sync_client_serves_many_threads(address: str, p: pulse.Pulse, stage: Stage) -> None:
    handles: dict[str, pulse.JobHandle] = {}
    statuses: dict[str, str] = {}

    def produce(client: pulse.SyncPulse, thread: int) -> None:
        for number in range(10):
            name = f"sync-{thread}-{number}"
            handles[name] = client.enqueue("sync-work", Errand(name))
        mine = [handle for name, handle in handles.items() if name.startswith(f"sync-{thread}-")]
        for handle in mine:
            statuses[handle.id] = client.get_job(handle.id).status

    def produce_from_threads() -> None:
        with pulse.SyncPulse(address, timeout=timedelta(seconds=20)) as client:
            threads = [threading.Thread(target=produce, args=(client, thread)) for thread in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await asyncio.to_thread(produce_from_threads)
    assert len({handle.id for handle in handles.values()}) == len(statuses) == 60
    for name, handle in handles.items():
        await finished(p, handle.id)
        (start,) = stage.executions(handle.id)
        assert start.name == name
        assert start.facts["thread"].startswith("pulse-handler-")
