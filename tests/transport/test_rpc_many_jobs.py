"""Finding, counting, canceling and retrying many jobs, over real gRPC and Postgres."""

import asyncio

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import PROMPT_SECONDS
from tests.transport.authorized import USERS, answer, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

DEAD = pb.JobFilter(status="DEAD_LETTERED")


async def add_dead_letters(server: ServerUnderTest, count: int, topic: str = "mail") -> None:
    """Insert dead letters of two kinds, alternately, into the table."""
    await server.table.connection.execute(
        """INSERT INTO pulse.jobs (id, submitted_at, next_run_at, started_at, finished_at, attempts,
                                   max_attempts, queued, delivered, status, topic, payload, finished_by,
                                   last_error, ended_as)
           SELECT gen_random_uuid(), clock_timestamp(), now(), now(), now(), 5,
                  5, false, true, 'DEAD_LETTERED', $2, '', 'w1',
                  CASE n % 2 WHEN 0 THEN 'Connection refused' ELSE 'no such user' END, 'DEAD_LETTERED'
           FROM generate_series(1, $1) AS n""",
        count,
        topic,
    )


async def retry_all(server: ServerUnderTest, **request: object) -> list[int]:
    """Retry batch by batch. Returns the count of each."""
    steps, token = [], ""
    while True:
        response = await server.stub.RetryJobs(pb.RetryJobsRequest(page_token=token, **request))
        steps.append(response.retried)
        token = response.next_page_token
        if not token:
            return steps


async def test_job_is_found_by_its_first_digits(server: ServerUnderTest) -> None:
    ids = await server.submit_many(3)
    for prefix in (ids[1], ids[1][:-1], ids[1].replace("-", "").upper(), f" {ids[1]} "):
        found = (await server.stub.FindJobs(pb.FindJobsRequest(prefix=prefix))).job_ids
        assert ids[1] in found
        assert set(found) <= set(ids)


async def test_no_more_than_ten_are_found(server: ServerUnderTest) -> None:
    ids = await server.submit_many(20)
    found = (await server.stub.FindJobs(pb.FindJobsRequest(prefix=ids[0][:4]))).job_ids
    assert list(found) == sorted(ids)[:10]


async def test_count_returns_the_number_of_matches(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 6)
    await add_dead_letters(server, 3, "sms")
    await server.submit_many(4)
    counted = {
        name: (await server.stub.CountJobs(pb.CountJobsRequest(filter=pb.JobFilter(**wanted)))).count
        for name, wanted in {
            "not finished": {},
            "dead": {"status": "DEAD_LETTERED"},
            "dead of a topic": {"status": "DEAD_LETTERED", "topic": "sms"},
            "dead by their error": {"status": "DEAD_LETTERED", "error_contains": "REFUSED"},
            "running": {"status": "RUNNING"},
        }.items()
    }
    assert counted == {
        "not finished": 4,
        "dead": 9,
        "dead of a topic": 3,
        "dead by their error": 4,
        "running": 0,
    }


async def test_list_takes_all_filters(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 4)
    border = Timestamp()
    border.FromDatetime(await server.table.connection.fetchval("SELECT clock_timestamp()"))
    late = await server.submit()

    async def listed(**wanted: object) -> int:
        return len((await server.stub.ListJobs(pb.ListJobsRequest(**wanted))).jobs)

    assert await listed(error_contains="no such") == 2
    assert await listed(submitted_before=border) == 4
    assert await listed(submitted_since=border) == 1
    assert await listed(submitted_since=border, status="DEAD_LETTERED") == 0
    assert await listed(schedule_id=late) == 0


async def test_retry_in_batches_retries_all(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 7)
    await add_dead_letters(server, 2, "sms")

    wanted = pb.JobFilter(status="DEAD_LETTERED", topic="mail")

    assert await retry_all(server, filter=wanted, limit=3) == [3, 3, 1]
    assert await server.table.count("status = 'PENDING' AND queued AND max_attempts = 10") == 7
    assert await server.table.count("status = 'DEAD_LETTERED' AND topic = 'sms'") == 2


async def test_jobs_that_came_after_the_count_are_left_alone(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 5)
    counted = await server.stub.CountJobs(pb.CountJobsRequest(filter=DEAD))
    await add_dead_letters(server, 3)
    wanted = pb.JobFilter(status="DEAD_LETTERED", submitted_before=counted.counted_at)

    assert sum(await retry_all(server, filter=wanted, limit=2)) == counted.count == 5
    assert await server.table.count("status = 'DEAD_LETTERED'") == 3


async def test_caller_that_stops_half_way_leaves_the_rest_unchanged(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 10)
    untouched = "SELECT id, job::text FROM pulse.jobs AS job WHERE status = 'DEAD_LETTERED'"
    before = dict(await server.table.connection.fetch(untouched))

    response = await server.stub.RetryJobs(pb.RetryJobsRequest(filter=DEAD, limit=4))

    rest = dict(await server.table.connection.fetch(untouched))
    assert (response.retried, len(rest)) == (4, 6)
    assert rest.items() <= before.items()


async def test_job_that_another_caller_has_just_retried_is_skipped(server: ServerUnderTest) -> None:
    """Another retry locks the row after the batch has selected it."""
    await add_dead_letters(server, 3)
    async with server.table.connection.transaction():
        await server.table.connection.execute(
            "UPDATE pulse.jobs SET status = 'PENDING', queued = true, finished_at = NULL, "
            "finished_by = NULL, ended_as = NULL, max_attempts = 6 "
            "WHERE id = (SELECT id FROM pulse.jobs ORDER BY id LIMIT 1)"
        )
        retrying = asyncio.ensure_future(server.stub.RetryJobs(pb.RetryJobsRequest(filter=DEAD)))
        await waits_for_a_lock(server)

    assert (await retrying).retried == 2
    assert await server.table.count("max_attempts = 6") == 1


async def waits_for_a_lock(server: ServerUnderTest) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    async with asyncio.timeout(PROMPT_SECONDS):
        while True:
            if await server.table.connection.fetchval(waiting):
                return
            await asyncio.sleep(0.01)


async def test_cancel_of_many_stops_the_workers_that_hold_some(server: ServerUnderTest) -> None:
    await server.submit_many(5)
    async with server.worker(capacity=2) as worker:
        held = await worker.take(2)
        request = pb.CancelJobsRequest(filter=pb.JobFilter(topic="mail"), reason="wrong list")
        response = await server.stub.CancelJobs(request)
        stopped = await worker.stops()
        while len(stopped) < 2:
            stopped += await worker.stops()

    assert (response.canceled, response.next_page_token) == (5, "")
    assert {claim.job_id for claim in stopped} == {job.job_id for job in held}
    assert await server.table.count("status = 'CANCELED' AND last_error = 'wrong list'") == 5


async def test_cancel_by_status_leaves_the_others(server: ServerUnderTest) -> None:
    await server.submit_many(3)
    async with server.worker(capacity=1) as worker:
        await worker.take_one()
        response = await server.stub.CancelJobs(pb.CancelJobsRequest(filter=pb.JobFilter(status="PENDING")))

    assert response.canceled == 2
    assert await server.table.count("status <> 'CANCELED'") == 1


@pytest.mark.parametrize(
    ("method", "may"),
    [
        ("FindJobs", {"admin", "operator", "producer", "viewer"}),
        ("CountJobs", {"admin", "operator", "viewer"}),
        ("CancelJobs", {"admin", "operator"}),
        ("RetryJobs", {"admin", "operator"}),
        ("ListTopics", {"admin", "operator", "viewer"}),
        ("ListWorkers", {"admin", "operator", "viewer"}),
    ],
)
async def test_roles_are_let_in_or_refused(database_dsn: str, method: str, may: set[str]) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        refused = set()
        for user in USERS:
            code, _ = await answer(caller(server.channel, user.name), method)
            if code is grpc.StatusCode.PERMISSION_DENIED:
                refused.add(user.name)
    assert refused == {user.name for user in USERS} - may


async def test_filter_of_several_topics_and_statuses_matches_each(server: ServerUnderTest) -> None:
    await server.submit_many(2)
    await add_dead_letters(server, 3, "sms")
    await add_dead_letters(server, 4, "fax")
    both = {"topics": ["sms", "mail"], "statuses": ["DEAD_LETTERED", "PENDING"]}

    listed = await server.stub.ListJobs(pb.ListJobsRequest(**both))
    counted = await server.stub.CountJobs(pb.CountJobsRequest(filter=pb.JobFilter(**both)))

    assert sorted(job.topic for job in listed.jobs) == ["mail"] * 2 + ["sms"] * 3
    assert counted.count == 5
    # The older fields name one more.
    wanted = pb.JobFilter(topic="sms", topics=["fax"], status="DEAD_LETTERED")
    assert (await server.stub.RetryJobs(pb.RetryJobsRequest(filter=wanted))).retried == 7


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (pb.JobFilter(topics=["mail", "sms"], lane="a"), "one topic"),
        (pb.JobFilter(statuses=["PENDING", "DONE"]), "'DONE' is not a status"),
        (pb.JobFilter(topics=["a\n"]), "topic"),
        (pb.JobFilter(topics=[f"t{n}" for n in range(1001)]), "topics"),
        (pb.JobFilter(error_group="none", statuses=["CANCELED", "PENDING"]), "CANCELED or PENDING"),
    ],
    ids=["lane", "status", "topic", "many", "group"],
)
async def test_filter_that_makes_no_sense_is_refused(
    server: ServerUnderTest, wanted: pb.JobFilter, problem: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=problem):
        await server.stub.CountJobs(pb.CountJobsRequest(filter=wanted))
