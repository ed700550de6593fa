"""Producers of two servers race, with claims, releases, lost leases and killed sessions."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.jobs.new_jobs import NewJob, OnConflict, Scope, Submitted, Unique
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import LEASE, a_job, failure, room, token
from tests.postgres.sessions import Connection

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")

KEYS = 2
TURNS = 6  # of a producer with the same keys
SUBMITS = 120  # of each producer
PERIOD = timedelta(milliseconds=200)
MODES = {
    "skip": Unique(""),
    "replace": Unique("", on_conflict=OnConflict.REPLACE),
    "debounce": Unique("", on_conflict=OnConflict.DEBOUNCE, period=PERIOD / 10, longest=PERIOD),
    "live": Unique("", Scope.LIVE),
    "throttle": Unique("", on_conflict=OnConflict.THROTTLE, period=PERIOD),
}
# Written apart from the index and from the statements: what must never be seen in any snapshot.
_VIOLATIONS = """
SELECT topic, unique_key, count(*) FROM pulse.jobs
WHERE topic <> 'live' AND status = 'PENDING' AND unique_key IS NOT NULL
GROUP BY topic, unique_key HAVING count(*) > 1
UNION ALL
SELECT topic, unique_key, count(*) FROM pulse.jobs
WHERE topic = 'live' AND status IN ('PENDING', 'RUNNING', 'RETRYING')
GROUP BY topic, unique_key HAVING count(*) > 1
"""
# Every period that was taken, in the order in which the sessions had the row.
_AUDIT = """
CREATE TABLE pulse.audited_periods (place bigserial, key text, until timestamptz, job_id uuid);
CREATE FUNCTION pulse.audit_period() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pulse.audited_periods (key, until, job_id) VALUES (NEW.key, NEW.until, NEW.job_id);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON pulse.unique_periods
    FOR EACH ROW EXECUTE FUNCTION pulse.audit_period();
"""
_END_OF_AUDIT = """
DROP TRIGGER audit ON pulse.unique_periods;
DROP FUNCTION pulse.audit_period;
DROP TABLE pulse.audited_periods
"""


class Races:
    """What was sent, answered and claimed, in the order in which this process saw it."""

    def __init__(self, repos: list[PostgresJobRepo]) -> None:
        self.repos = repos
        self.step = 0
        self.last_submit: dict[tuple[str, str], int] = {}
        self.last_claim: dict[tuple[str, str], int] = {}
        self.newest: dict[str, bytes] = {}
        self.claimed_payload: dict[str, bytes] = {}
        self.answers: Counter[str] = Counter()
        self.stored: set[str] = set()
        self.key_of: dict[str, tuple[str, str]] = {}
        self.producing = True

    def next_step(self) -> int:
        self.step += 1
        return self.step

    async def produce(self, number: int) -> None:
        choose = random.Random(number)
        repo = self.repos[number % 2]
        for turn in range(SUBMITS):
            jobs = []
            for _ in range(choose.choice([1, 1, 3])):
                topic = choose.choice(list(MODES))
                # New keys every few turns: the last submit of each has to be followed by a start. A replaced
                # key has one producer: the last payload that it sent is the newest.
                key = f"{turn // TURNS} {number if topic == 'replace' else choose.randrange(KEYS)}"
                unique = MODES[topic]._replace(key=key)
                delay = unique.period if topic == "debounce" else None
                jobs.append(a_job(topic, unique=unique, delay=delay, payload=b"%d" % turn, max_attempts=1000))
            await self.submit(repo, jobs)

    async def submit(self, repo: PostgresJobRepo, jobs: list[NewJob]) -> None:
        sent = self.next_step()
        for job in jobs:
            assert job.unique is not None
            self.key_of[job.id] = (job.topic, job.unique.key)
        while jobs:
            try:
                answers = await repo.insert_rich_jobs(jobs)
            except Unavailable:  # killed: the producer repeats, with the same ids
                continue
            again = []
            for job, answer in zip(jobs, answers, strict=True):
                if isinstance(answer, Submitted):
                    self.note(job, answer, sent)
                else:
                    assert isinstance(answer, Unavailable), answer
                    again.append(job)
            jobs = again

    def note(self, job: NewJob, answer: Submitted, sent: int) -> None:
        topic, key = self.key_of[job.id]
        self.last_submit[topic, key] = sent
        what = "replaced" if answer.is_replaced else "duplicate" if answer.duplicate else "stored"
        self.answers[f"{topic} {what}"] += 1
        assert self.key_of[answer.job_id] == (topic, key), "a duplicate is one of the same key"
        if not answer.duplicate:
            self.stored.add(answer.job_id)
        if topic == "replace":
            self.newest[key] = job.payload

    async def consume(self, number: int) -> None:
        choose = random.Random(100 + number)
        while self.producing:
            try:
                await self.work(self.repos[number % 2], choose)
            except Unavailable:
                continue

    async def work(self, repo: PostgresJobRepo, choose: random.Random, *, drain: bool = False) -> int:
        await repo.promote_due(1000)
        jobs = await repo.claim_batch(list(MODES), room(f"w{choose.random()}", 100), LEASE)
        for job in jobs:
            topic, key = self.key_of[job.id]
            self.last_claim[topic, key] = self.next_step()
            if topic == "replace":
                self.claimed_payload[key] = max(
                    job.payload, self.claimed_payload.get(key, b"0"), key=lambda payload: int(payload)
                )
        claims = [token(job) for job in jobs]
        if not drain:
            await asyncio.sleep(0.01)  # they run
        match "complete" if drain else choose.choice(["complete", "complete", "fail", "release", "lose"]):
            case "complete":
                await repo.complete_jobs(claims)
            case "fail":
                await repo.fail_jobs([failure(claim, retry_after=timedelta(0)) for claim in claims])
            case "release":
                await repo.release_jobs(claims)
        return len(jobs)

    async def reap(self, connection: Connection) -> None:
        """Let the leases end of the workers that were lost."""
        while self.producing:
            await connection.execute(
                "UPDATE pulse.jobs SET lease_until = now() - interval '1 s' "
                "WHERE locked_by IS NOT NULL AND started_at < clock_timestamp() - interval '30 ms'"
            )
            await connection.execute(
                "UPDATE pulse.lease_checks SET check_at = now() - interval '1 s', settled = true"
            )
            try:
                await self.repos[0].reap_expired(100)
            except Unavailable:
                continue
            await asyncio.sleep(0.02)

    async def kill(self, connection: Connection) -> None:
        """Terminate sessions of the servers in the middle of their statements."""
        while self.producing:
            await asyncio.sleep(0.05)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND state = 'active' AND query LIKE '%pulse:%' "
                "AND pid <> pg_backend_pid() LIMIT 1"
            )


@pytest.fixture
async def races(shared_dsn: str, connection: Connection) -> AsyncIterator[Races]:
    databases = [Database(shared_dsn) for _ in range(2)]
    await connection.execute(_AUDIT)
    yield Races([PostgresJobRepo(database) for database in databases])
    await connection.execute(_END_OF_AUDIT)
    for database in databases:
        await database.close()


async def watch(races: Races, connection: Connection) -> list[asyncpg.Record]:
    seen: list[asyncpg.Record] = []
    while races.producing:
        seen += await connection.fetch(_VIOLATIONS)
        await asyncio.sleep(0.01)
    return seen


async def test_racing_producers_never_see_two_jobs_of_a_key(
    races: Races, connection: Connection, second_connection: Connection, shared_dsn: str
) -> None:
    killer = await asyncpg.connect(shared_dsn)
    others = [
        asyncio.create_task(work)
        for work in (
            *(races.consume(number) for number in range(2)),
            races.reap(second_connection),
            races.kill(killer),
        )
    ]
    watching = asyncio.create_task(watch(races, connection))
    await asyncio.gather(*(races.produce(number) for number in range(4)))
    races.producing = False
    await asyncio.gather(*others)
    await killer.close()

    assert await watching == []
    assert await connection.fetch(_VIOLATIONS) == []
    for what in ("skip stored", "skip duplicate", "replace replaced", "debounce replaced", "live duplicate"):
        assert races.answers[what], races.answers
    await every_submit_was_followed_by_a_start(races, connection)
    await every_period_has_one_job(races, connection)


async def every_submit_was_followed_by_a_start(races: Races, connection: Connection) -> None:
    """A job that ran with old data swallowed no new data, and what was answered as stored is there."""
    await connection.execute(
        "UPDATE pulse.jobs SET lease_until = now() - interval '1 s' WHERE locked_by IS NOT NULL"
    )
    await connection.execute(
        "UPDATE pulse.lease_checks SET check_at = now() - interval '1 s', settled = true"
    )
    await races.repos[0].reap_expired(1000)
    while await connection.fetchval("SELECT count(*) FROM pulse.jobs"):
        await connection.execute("UPDATE pulse.jobs SET next_run_at = now() WHERE NOT queued")
        await races.work(races.repos[0], random.Random(0), drain=True)
    for place, sent in races.last_submit.items():
        if place[0] not in ("live", "throttle"):
            assert races.last_claim[place] > sent, place
    assert races.claimed_payload == races.newest
    found = await connection.fetch("SELECT id FROM pulse.completed_jobs")
    assert races.stored <= {str(row["id"]) for row in found}


async def every_period_has_one_job(races: Races, connection: Connection) -> None:
    taken: dict[str, list[asyncpg.Record]] = defaultdict(list)
    for row in await connection.fetch("SELECT key, until, job_id FROM pulse.audited_periods ORDER BY place"):
        taken[row["key"]].append(row)
    for rows in taken.values():
        assert all(later["until"] - earlier["until"] >= PERIOD for earlier, later in pairwise(rows))
    throttled = {str(row["job_id"]) for rows in taken.values() for row in rows}
    jobs = await connection.fetch("SELECT id FROM pulse.completed_jobs WHERE topic = 'throttle'")
    assert {str(row["id"]) for row in jobs} == throttled, (
        "no job without its period, no period without its job"
    )
