"""A queue after days of use: jobs in all states, most of them completed and in the partitions of their days.

Jobs, statistics and the audit are put into the database by SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg

import pulse
from benchmarks.filling import TOPIC, fill
from benchmarks.finished import fill_finished

# Completed on past days, and today with metadata and errors; not completed; in lanes of TOPIC.
FINISHED, TODAY, OTHERS, LANED = 780_000, 20_000, 160_000, 40_000
JOBS = FINISHED + TODAY + OTHERS + LANED
# Days within the default retention, so that no server deletes them during the run.
DAYS_AGO = (1, 2, 3, 4, 5, 6)
TOPICS = [f"topic-{number}" for number in range(20)]
LANES = 1_000
SCHEDULES = 25
RUNNING = 50
ENTRIES = 50_000
WORKFLOWS, WORKFLOW_JOBS = 60, 100

# Of 20 jobs, 12 are ready, 4 delayed, 3 dead letters of one of 7 errors, and one is canceled.
_OTHERS = """
INSERT INTO pulse.jobs
    (id, topic, payload, metadata, max_attempts, attempts, submitted_at, next_run_at, queued, status,
     finished_at, last_error, error_group, ended_as)
SELECT gen_random_uuid(), ($2::text[])[1 + i / 20 % cardinality($2::text[])],
       convert_to(format('{"order_id": %s, "customer": {"name": "customer-%s"}}', i, i % 1000), 'UTF8'),
       jsonb_build_object('customer', 'customer-' || i % 1000, 'region', 'eu'), 5, 1,
       now() - interval '1 hour' + i * (interval '59 minutes' / $1),
       now() + CASE WHEN i % 20 BETWEEN 12 AND 15 THEN interval '1 day' ELSE interval '-1 hour' END,
       i % 20 < 12, COALESCE(ended.status, 'PENDING'),
       CASE WHEN ended.status IS NOT NULL THEN now() - i * interval '1 millisecond' END,
       CASE WHEN ended.status = 'DEAD_LETTERED' THEN 'ValueError: number ' || i END,
       CASE WHEN ended.status = 'DEAD_LETTERED' THEN left(md5((i / 20 % 7)::text), 12) ELSE '' END,
       ended.status
FROM generate_series(1, $1::int) AS i
CROSS JOIN LATERAL (
    SELECT CASE WHEN i % 20 = 19 THEN 'CANCELED' WHEN i % 20 > 15 THEN 'DEAD_LETTERED' END
) AS ended (status)
"""
_TODAY = """
INSERT INTO pulse.completed_jobs
    (id, submitted_at, next_run_at, started_at, finished_at, priority, attempts, max_attempts, delivered,
     topic, payload, finished_by, last_error, metadata)
SELECT gen_random_uuid(), at, at, at, at + interval '5 milliseconds', 0, 2, 5, true,
       ($2::text[])[1 + i % cardinality($2::text[])], '\\x7b7d', 'bench-1-abcdef', 'ValueError: number ' || i,
       jsonb_build_object('customer', 'customer-' || i % 1000, 'region', 'eu')
FROM (SELECT i, now() - i * interval '30 milliseconds' AS at FROM generate_series(1, $1::int) AS i) AS made
"""
_MINUTES = """
INSERT INTO pulse.topic_minutes
    (minute, topic, submitted, completed, failed, wait_buckets, run_buckets, ready, running, oldest_seconds)
SELECT date_trunc('minute', now()) - minute * interval '1 minute', topic, 100, 90, 10,
       '{"20": 30, "21": 40, "22": 30}', '{"30": 20, "31": 50, "32": 20, "40": 10}', 5000, 3, 60
FROM generate_series(0, 1440) AS minute, unnest('{""}'::text[] || $1::text[]) AS topic
ON CONFLICT DO NOTHING
"""
_AUDIT = """
INSERT INTO pulse.audit
    (id, at, changed, user_name, role, address, method, reason, outcome, topics, ids, asked, changes)
SELECT gen_random_uuid(), now() - i * interval '30 seconds', 1 + i % 50, 'user-' || i % 10, 'operator',
       '10.0.0.1', (ARRAY['CancelJob', 'RetryJobs', 'SetTopic', 'PauseDispatch'])[1 + i % 4],
       'because of ' || i, CASE WHEN i % 100 = 0 THEN 'PERMISSION_DENIED' ELSE 'OK' END,
       ARRAY[($2::text[])[1 + i % cardinality($2::text[])]], ARRAY[gen_random_uuid()::text],
       '{"status": "PENDING"}', '{}'
FROM generate_series(1, $1::int) AS i
"""
_GROUP = "SELECT error_group FROM pulse.jobs WHERE ended_as = 'DEAD_LETTERED' AND topic = 'topic-5' LIMIT 1"


async def fill_queue(dsn: str, client: pulse.Pulse, sized: Callable[[int], int]) -> None:
    """Fill all tables that operators look at. `sized` returns the number of rows to make of a number."""
    # Before its jobs, which are stored by these limits.
    await client.set_topic(TOPIC, running=RUNNING, per_lane=1)
    await fill(dsn, sized(LANED), lanes=LANES)
    await fill_finished(dsn, sized(FINISHED), days_ago=DAYS_AGO, topics=TOPICS)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_OTHERS, sized(OTHERS), TOPICS, timeout=600)
        await connection.execute(_TODAY, sized(TODAY), TOPICS, timeout=600)
        await connection.execute(_MINUTES, [*TOPICS, TOPIC], timeout=600)
        await connection.execute(_AUDIT, sized(ENTRIES), TOPICS, timeout=600)
    finally:
        await connection.close()
    for number in range(SCHEDULES):
        await client.schedule("topic-1", {}, pulse.Cron(f"{number} 3 * * *"), name=f"number {number}")
    for topic in TOPICS[:10]:
        await client.set_topic(topic, max_attempts=8, keep_dead_lettered="forever")
    await client.set_topic("topic-1", rate=pulse.Rate(1_000, per=timedelta(minutes=1)))
    await client.pause(reason="its provider is down", topic="topic-19")
    for number in range(WORKFLOWS):
        async with client.workflow(f"report {number}") as flow:
            first = flow.add("later", name="first")
            parts = [flow.add("later", name=f"part-{part}", after=first) for part in range(WORKFLOW_JOBS - 2)]
            flow.add("later", name="last", after=parts)


@asynccontextmanager
async def busy_worker(address: str) -> AsyncIterator[None]:
    """A worker with jobs that never end, of a plain topic and of TOPIC, for the length of the block."""
    async with pulse.Pulse(address, concurrency=RUNNING) as worker:

        async def wait() -> None:
            await asyncio.Event().wait()

        for topic in ("topic-0", TOPIC):
            worker.register(topic, wait)
        running = asyncio.create_task(worker.run(handle_signals=False))
        try:
            while len(await worker.list_jobs(status="RUNNING", limit=RUNNING)) < RUNNING:
                assert not running.done(), "the worker has ended"
                await asyncio.sleep(0.1)
            yield
        finally:
            running.cancel()
            await asyncio.wait({running})


async def ids_by_name(dsn: str, client: pulse.Pulse) -> dict[str, str]:
    """Return the id of a job in each state, of a schedule, a workflow and a group of dead letters."""
    wanted: dict[str, pulse.JobFilter] = {
        "ready": {"topic": "topic-3", "status": "PENDING"},
        "laned": {"topic": TOPIC, "status": "PENDING"},
        "running": {"status": "RUNNING"},
        "completed": {"topic": "topic-3", "status": "COMPLETED"},
        "dead": {"topic": "topic-3", "status": "DEAD_LETTERED"},
    }
    ids = {name: (await client.list_jobs(limit=1, **which)).jobs[0].id for name, which in wanted.items()}
    ids["schedule"] = (await client.schedules.list(limit=1)).schedules[0].id
    ids["workflow"] = (await client.workflows.list(limit=1)).workflows[0].id
    connection = await asyncpg.connect(dsn)
    try:
        return {**ids, "group": await connection.fetchval(_GROUP)}
    finally:
        await connection.close()
