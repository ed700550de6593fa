"""Limits that change while other transactions are open: which have to end, and what arrives late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim
from pulse_server.topics.rules import OpenTransaction, pending
from pulse_server.topics.store import PostgresLimitRepo
from tests.eventually import eventually
from tests.fakes.store import LEASE, a_job, room, token
from tests.postgres.interface import complete, enqueue
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection, blocked

MINUTE = timedelta(minutes=1)
_SQL = statements("topics/limits.sql")
# The lock of a statement in `slow_inserts`.
_UNDER_WAY = (
    "locktype = 'advisory' AND objid = 2 AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
async def shop(shared_dsn: str) -> AsyncIterator[Connection]:
    """An application in the middle of a transaction."""
    connection = await asyncpg.connect(shared_dsn, server_settings={"application_name": "shop"})
    await connection.execute("BEGIN")
    yield connection
    connection.terminate()


@pytest.fixture
async def bank(shared_dsn: str) -> AsyncIterator[Connection]:
    """Another one."""
    connection = await asyncpg.connect(shared_dsn, server_settings={"application_name": "bank"})
    await connection.execute("BEGIN")
    yield connection
    connection.terminate()


async def held_up_by(limited: Limited, **entries: Any) -> list[str]:
    """Change the limits. Returns the applications whose transactions have to end first."""
    holders = await limited.limits.limit_topic(TOPIC, {**entries})
    assert holders is not None, "it is in force"
    return [holder.application or "" for holder in holders]


async def plain(limited: Limited, count: int = 5) -> list[Claim]:
    """What a claim of plain topics takes."""
    return [token(job) for job in await limited.store.repo.claim_batch([TOPIC], room("A", count), LEASE)]


async def running(limited: Limited) -> int:
    """How many jobs of the topic run, apart from what is counted."""
    count = "SELECT count(*) FROM pulse.jobs WHERE topic = $1 AND locked_by IS NOT NULL"
    return int(await limited.connection.fetchval(count, TOPIC))


async def counted(limited: Limited) -> int:
    (limits,) = await limited.limits.list_limits(limit=1, topics=[TOPIC])
    return limits.running


@asynccontextmanager
async def slow_inserts(
    limited: Limited, rival: Connection, table: str = "lease_checks"
) -> AsyncIterator[None]:
    """Statements that start jobs do not end before this does. A wait for a lock would be given up.

    With the table of jobs: statements that store jobs.
    """
    await rival.execute("ROLLBACK; SELECT pg_advisory_lock(1)")
    await limited.connection.execute(
        f"""
        CREATE FUNCTION pulse.wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(2);
            WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP
                PERFORM pg_sleep(0.002);
            END LOOP;
            RETURN NULL;
        END $$;
        CREATE TRIGGER wait_for_test BEFORE INSERT ON pulse.{table}
            FOR EACH STATEMENT EXECUTE FUNCTION pulse.wait_for_test()
        """
    )
    try:
        yield
    finally:
        await rival.execute("SELECT pg_advisory_unlock_all()")
        await limited.connection.execute(
            f"DROP TRIGGER wait_for_test ON pulse.{table}; DROP FUNCTION pulse.wait_for_test"
        )


async def insert_is_under_way(limited: Limited) -> None:
    async def has_begun() -> bool:
        return bool(await limited.connection.fetchval(f"SELECT count(*) FROM pg_locks WHERE {_UNDER_WAY}"))

    await eventually(has_begun, "a statement is under way")


# ---------------------------------------------------------------- transactions that have enqueued

POLICIES = {
    "running": {"running": 2},
    "lanes": {"per_lane": 2},
    "pool": {"running": 2, "pool": "gpu"},
    "aging": {"per_lane": 2, "aging": MINUTE},
    "ordered": {"ordered": True, "running": 2},
}


@pytest.mark.parametrize("entries", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_first_limit_is_in_force_at_once_beside_transactions_that_have_enqueued(
    limited: Limited, shop: Connection, bank: Connection, entries: dict[str, Any], end: str
) -> None:
    await limited.submit(*(in_lane("a") for _ in range(3)))
    (before,) = await plain(limited, 1)
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="a")
    await enqueue(bank, topic="email", payload=b"1")

    await limited.limit_topic(**entries)

    started = [before, *await limited.claim_all()]
    assert len(started) == (1 if "ordered" in entries else 2)
    assert await plain(limited) == []
    await shop.execute(end)
    await bank.execute(end)
    assert await limited.claim_all() == []
    done = []
    while started:
        assert await running(limited) == len(started) == await counted(limited)
        await limited.complete(*started)
        done += [claim.job_id for claim in started]
        started = await limited.claim_all()
    assert len(done) == (4 if end == "COMMIT" else 3)
    assert (late in done) == (end == "COMMIT")
    assert await limited.agrees()


@pytest.mark.parametrize("entries", [{"running": 1}, {"per_lane": 1}, {"running": 1, "pool": "gpu"}], ids=str)
async def test_last_limit_ends_at_once_beside_a_transaction_that_has_enqueued(
    limited: Limited, shop: Connection, entries: dict[str, Any]
) -> None:
    await limited.limit_topic(**entries)
    await limited.submit(*(in_lane("a") for _ in range(3)))
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="a")
    has_lanes = "per_lane" in entries

    assert await limited.limits.retire(TOPIC) is None

    assert len(await limited.claim_all()) == 3
    assert await limited.limits.remove_retired() == ([] if has_lanes else [TOPIC])
    await shop.execute("COMMIT")
    assert await limited.limits.remove_retired() == ([TOPIC] if has_lanes else [])
    assert [claim.job_id for claim in await plain(limited)] == [late]
    assert not await limited.connection.fetch("SELECT * FROM pulse.barred_topics")
    assert not await limited.connection.fetch("SELECT * FROM pulse.limit_notices")
    assert not await limited.connection.fetch("SELECT * FROM pulse.pools")


@pytest.mark.parametrize("is_prepared", [False, True], ids=["open", "prepared"])
async def test_topic_that_had_lanes_is_plain_once_no_transaction_can_use_them(
    limited: Limited, shop: Connection, bank: Connection, is_prepared: bool
) -> None:
    """A job that enters a lane of a plain topic would never start."""
    await limited.limit_topic(per_lane=1)
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="a")
    assert await limited.limits.retire(TOPIC) is None
    assert await limited.limits.remove_retired() == []
    await bank.execute("ROLLBACK; BEGIN")
    await enqueue(bank, topic="email", payload=b"1")  # began later: it does not count
    if is_prepared:
        await shop.execute("PREPARE TRANSACTION 'late'")
        assert await limited.limits.remove_retired() == []
        assert await limited.limits.remove_retired() == []
    await shop.execute("COMMIT PREPARED 'late'" if is_prepared else "COMMIT")

    assert await limited.limits.remove_retired() == [TOPIC]
    assert [claim.job_id for claim in await plain(limited)] == [late]


async def test_transaction_with_an_old_snapshot_may_still_use_the_lanes(
    limited: Limited, shop: Connection
) -> None:
    """At a stricter level it reads the policy that was in force when it began."""
    await limited.limit_topic(per_lane=1)
    await shop.execute("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT")
    assert await limited.limits.retire(TOPIC) is None
    assert await limited.limits.remove_retired() == []
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="a")
    assert await limited.connection.fetchval("SELECT tier FROM pulse.jobs") is None
    await shop.execute("COMMIT")
    assert await limited.limits.remove_retired() == [TOPIC]
    assert [claim.job_id for claim in await plain(limited)] == [late]


@pytest.mark.parametrize("is_shared", [False, True], ids=["pool is gone", "pool is in use"])
async def test_late_job_of_a_topic_that_has_moved_to_another_pool_starts(
    limited: Limited, shop: Connection, is_shared: bool
) -> None:
    """Its notice names the previous pool, whose claims must not write lanes of this one."""
    await limited.limit_topic(per_lane=1, running=5, pool="gpu")
    if is_shared:
        await limited.limit_topic("train", running=5, pool="gpu")
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="late")

    await limited.limit_topic(per_lane=1, running=5, pool="cpu")

    assert await limited.limits.remove_retired() == []
    await shop.execute("COMMIT")
    if is_shared:
        await limited.claims(5, "train")
    else:
        assert await limited.limits.remove_retired() == []
    assert [claim.job_id for claim in await limited.claim_all()] == [late]
    assert await limited.agrees()
    assert await limited.limits.remove_retired() == []
    assert (
        await limited.connection.fetchval("SELECT older FROM pulse.limit_policies WHERE topic = $1", TOPIC)
        is None
    )


async def test_late_job_has_the_rank_of_the_new_aging_once_its_transaction_has_ended(
    limited: Limited, shop: Connection
) -> None:
    await limited.limit_topic(per_lane=1, aging=timedelta(microseconds=1))
    (first,) = await limited.submit(in_lane("a"))
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="a", priority=3)

    await limited.limit_topic(per_lane=1)

    await limited.claims(0)
    assert await limited.limits.remove_retired() == []
    await shop.execute("COMMIT")
    await limited.limits.remove_retired()
    (claim,) = await limited.claim_all()
    assert claim.job_id == late
    await limited.complete(claim)
    (claim,) = await limited.claim_all()
    assert claim.job_id == first
    assert await limited.agrees()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"per_lane": 1}, {"running": 1}),
        ({"turns": True}, {"per_lane": 2}),
        ({"per_lane": 2}, {"turns": True}),
        ({"running": 1}, {"per_lane": 1}),
        ({"per_lane": 1}, {"ordered": True, "aging": MINUTE}),
    ],
    ids=str,
)
async def test_late_job_starts_under_other_lanes(
    limited: Limited, shop: Connection, before: dict[str, Any], after: dict[str, Any]
) -> None:
    await limited.limit_topic(**before)
    jobs = await limited.submit(in_lane("a"), in_lane("b"), in_lane(None))
    held = await limited.claim(1)
    late, _, _ = await enqueue(shop, topic=TOPIC, payload=b"1", lane="late")

    await limited.limit_topic(**after)
    assert await running(limited) == await counted(limited) == 1
    await shop.execute("COMMIT")

    done: list[str] = []
    while held:
        await limited.complete(*held)
        done += [claim.job_id for claim in held]
        held = await limited.claim_all()
    assert sorted(done) == sorted([*jobs, late])
    assert await limited.agrees()


@pytest.mark.parametrize("mode", ["ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE"])
async def test_lock_of_the_jobs_table_is_not_in_the_way_of_a_limit(
    limited: Limited, rival: Connection, mode: str
) -> None:
    """Such a session has changed other jobs, or is a vacuum."""
    await rival.execute(f"LOCK TABLE pulse.jobs IN {mode} MODE")
    await limited.limit_topic(running=1)
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    assert len(await limited.claim_all()) == 1
    assert await limited.limits.retire(TOPIC) is None
    assert await limited.limits.remove_retired() == [TOPIC]


@pytest.mark.parametrize(
    "after",
    [{"per_lane": 1, "running": 5, "pool": "cpu"}, {"running": 5}, {"turns": True}, None],
    ids=["other pool", "no lanes", "turns", "plain"],
)
async def test_job_that_is_stored_and_claimed_while_its_topic_changes_starts(
    limited: Limited, rival: Connection, after: dict[str, Any] | None
) -> None:
    """The statement has put it into a lane of the old policy, and claims by the new one."""
    await limited.limit_topic(per_lane=1, running=5, pool="gpu")
    job = in_lane("a")
    async with slow_inserts(limited, rival, "jobs"):
        handover = asyncio.ensure_future(limited.limits.hand_over_limited(TOPIC, [job], room("A", 1), LEASE))
        await insert_is_under_way(limited)
        if after is None:
            assert await limited.limits.retire(TOPIC) is None
        else:
            await limited.limit_topic(**after)
        assert await limited.limits.remove_retired() == []
    _, claims = await handover
    started = [token(claimed) for claimed in claims.jobs] + await limited.claim_all()
    assert await limited.limits.remove_retired() == ([TOPIC] if after is None else [])
    started += await limited.claim_all() + await plain(limited)
    assert [claim.job_id for claim in started] == [job.id]
    await limited.complete(*started)
    assert await limited.agrees()


# ---------------------------------------------------------------- transactions that end runs

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "first limit": ({}, {"running": 2}),
    "first lanes": ({}, {"per_lane": 2}),
    "to a pool": ({"running": 2}, {"running": 2, "pool": "gpu"}),
    "to lanes": ({"running": 2}, {"per_lane": 2}),
    "to a limit of lanes": ({"turns": True, "running": 2}, {"per_lane": 2}),
    "to no limit of lanes": ({"per_lane": 2}, {"turns": True, "running": 2}),
    "to no lanes": ({"per_lane": 2}, {"running": 2}),
    "to aging": ({"per_lane": 2}, {"per_lane": 2, "aging": MINUTE}),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_change_waits_for_the_transaction_that_completes_a_job_and_the_topic_goes_on(
    limited: Limited, shop: Connection, before: dict[str, Any], after: dict[str, Any], end: str
) -> None:
    jobs = await limited.submit(*(in_lane("a") for _ in range(6)))
    if before:
        await limited.limit_topic(**before)
        first, second = await limited.claim(2)
    else:
        first, second = await plain(limited, 2)
    await complete(shop, first)

    assert await held_up_by(limited, **after) == ["shop"]
    (holder,) = await limited.limits.limit_topic(TOPIC, {**after}) or ()
    assert holder.pid == shop.get_server_pid()

    held = [second]
    if before:
        (limits,) = await limited.limits.list_limits(limit=5)
        assert "aging" not in limits.in_force
        assert await limited.claim_all() == [], "the previous limit holds"
    else:
        held += await plain(limited, 1)
        assert len(held) == 2, "the topic goes on"
    assert await limited.agrees()
    await shop.execute(end)
    await limited.limit_topic(**after)

    if end == "ROLLBACK":
        held.append(first)
    assert await running(limited) == await counted(limited) == len(held)
    done = 6 - len(jobs) + (end == "COMMIT")
    while held:
        await limited.complete(*held)
        done += len(held)
        held = await limited.claim_all()
        assert len(held) <= 2
    assert done == 6
    assert await limited.agrees()


async def test_completion_that_waits_for_a_change_ends_the_run_by_the_new_policy(
    limited: Limited, rival: Connection, shop: Connection
) -> None:
    await limited.limit_topic(running=1, turns=True)
    await limited.submit(in_lane("a"), in_lane("a"))
    (claim,) = await limited.claim_all()
    arguments = (TOPIC, "gpu", True, 1, None, None, False, None, False, 1, None, None, None)
    assert await rival.fetchval(_SQL["limit_topic"], *arguments) == "in force"

    completion = await blocked(limited.connection, complete(shop, claim))
    await rival.execute("COMMIT")
    await completion
    await shop.execute("COMMIT")

    assert await counted(limited) == 0
    assert len(await limited.claim_all()) == 1
    assert await limited.agrees()


async def test_last_limit_waits_for_a_locked_job_and_nothing_is_counted_twice(
    limited: Limited, shop: Connection
) -> None:
    await limited.limit_topic(running=1)
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    (claim,) = await limited.claim_all()
    await complete(shop, claim)

    assert await limited.limits.retire(TOPIC) is None, "numbers change at once"
    assert await limited.limits.remove_retired() == []
    assert len(await limited.claim_all()) == 1, "nothing limits it"
    await shop.execute("ROLLBACK")
    assert await limited.limits.remove_retired() == [TOPIC]

    await limited.limit_topic(running=2)
    assert await running(limited) == await counted(limited) == 2
    assert await limited.agrees()


async def test_prepared_transaction_is_named(limited: Limited, shop: Connection) -> None:
    await limited.submit(a_job(TOPIC))
    (claim,) = await plain(limited)
    await complete(shop, claim)
    await shop.execute("PREPARE TRANSACTION 'booking 7'")

    holders = await limited.limits.limit_topic(TOPIC, {"running": 1})

    assert holders is not None
    assert [holder.gid for holder in holders] == ["booking 7"]
    assert pending(holders) == "in force once the prepared transaction 'booking 7' has ended"
    await shop.execute("COMMIT PREPARED 'booking 7'")
    await limited.limit_topic(running=1)
    assert await counted(limited) == 0


@pytest.mark.parametrize("is_prepared", [False, True], ids=["open", "prepared"])
async def test_completion_in_a_savepoint_that_was_released_is_named(
    limited: Limited, shop: Connection, bank: Connection, is_prepared: bool
) -> None:
    """As in an inner transaction of a framework. Each try would hold up the ends of the topic's jobs."""
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    first, _ = await plain(limited, 2)
    await enqueue(bank, topic=TOPIC, payload=b"1")
    await shop.execute("SAVEPOINT inner_one")
    await complete(shop, first)
    await shop.execute("RELEASE SAVEPOINT inner_one")
    if is_prepared:  # no other test has its name: it is one of the whole server
        await shop.execute("PREPARE TRANSACTION 'booking 8'")

    for _ in range(2):
        holders = await limited.limits.limit_topic(TOPIC, {"running": 1})
        assert [holder.gid or holder.application for holder in holders or ()] == [
            "booking 8" if is_prepared else "shop"
        ]
    assert not await limited.connection.fetch("SELECT FROM pulse.barred_topics")
    await shop.execute("ROLLBACK PREPARED 'booking 8'" if is_prepared else "ROLLBACK")
    await limited.limit_topic(limit=1)
    assert await counted(limited) == 2


async def test_completion_of_another_topic_is_not_in_the_way(limited: Limited, shop: Connection) -> None:
    await limited.submit(a_job("email"))
    (job,) = await limited.store.repo.claim_batch(["email"], room("A", 1), LEASE)
    await complete(shop, token(job))
    await limited.limit_topic(running=1)


async def test_session_that_has_the_pool_locked_is_named(limited: Limited, shop: Connection) -> None:
    await limited.limit_topic(running=1)
    await shop.execute("SELECT FROM pulse.pools FOR UPDATE")
    assert await held_up_by(limited, limit=2) == ["shop"]
    await shop.execute("ROLLBACK")
    await limited.limit_topic(running=2)


def test_clause_names_each_transaction() -> None:
    one = OpenTransaction(7, "shop", "ada", None)
    assert pending([one]) == "in force once pid 7 (shop, user ada) has ended"
    assert pending([one, OpenTransaction(8, "", None, None)]) == (
        "in force once pid 7 (shop, user ada) and pid 8 have ended"
    )
    assert "another transaction" in pending([])


# ---------------------------------------------------------------- starts under way, and killed servers


@pytest.mark.parametrize("is_handed_over", [False, True], ids=["claim", "hand-over"])
async def test_start_that_is_under_way_is_counted_by_the_first_limit(
    limited: Limited, rival: Connection, is_handed_over: bool
) -> None:
    await limited.submit(*(a_job(TOPIC) for _ in range(0 if is_handed_over else 5)))
    repo = limited.store.repo
    async with slow_inserts(limited, rival):
        if is_handed_over:
            start: asyncio.Future[Any] = asyncio.ensure_future(
                repo.hand_over_jobs([a_job(TOPIC)], [Taker("A", False)], LEASE)
            )
        else:
            start = asyncio.ensure_future(plain(limited, 3))
        await insert_is_under_way(limited)
        assert await held_up_by(limited, limit=2) == [
            await limited.connection.fetchval(
                f"SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE {_UNDER_WAY}"
            )
        ]
        assert not await limited.connection.fetch("SELECT * FROM pulse.barred_topics"), "the topic goes on"
    await start

    await limited.limit_topic(running=2)

    assert await running(limited) == await counted(limited) == (1 if is_handed_over else 3)
    await limited.submit(*(a_job(TOPIC) for _ in range(4)))
    assert len(await limited.claim_all()) == (1 if is_handed_over else 0)
    assert await limited.agrees()


def test_each_start_of_a_plain_job_locks_the_lease_checks() -> None:
    """By this lock a first limit finds those that have not seen its mark."""
    sections = [
        (name, statement)
        for file in ("jobs/transitions/claims.sql", "jobs/transitions/jobs.sql")
        for name, statement in statements(file).items()
    ]
    starts = {
        name: statement
        for name, statement in sections
        if ("'RUNNING'" in statement and "job.run + 1" in statement) or "hand_over" in name
    }
    plain_starts = {name for name, statement in starts.items() if "claim_limited_v1" not in statement}
    assert plain_starts == {"claim_batch", "claim_across_topics", "hand_over_jobs", "hand_over_one"}
    for name in plain_starts:
        assert "INSERT INTO pulse.lease_checks" in starts[name], name


async def test_start_after_the_mark_leaves_the_topic_out(limited: Limited, rival: Connection) -> None:
    """One that begins before it is found by its lock. So none begins unseen."""
    await limited.submit(*(a_job(TOPIC) for _ in range(5)))
    async with slow_inserts(limited, rival):
        start = asyncio.ensure_future(plain(limited, 3))
        await insert_is_under_way(limited)
        mark = await limited.connection.fetchval(_SQL["mark_topic"].replace("$1", f"'{TOPIC}'"))
        under_way = await limited.connection.fetch(_SQL["plain_starts"], None)
    assert len(under_way) == 1
    assert len(await start) == 3
    assert not await limited.connection.fetch(_SQL["plain_starts"], [row["number"] for row in under_way])
    assert mark
    assert await plain(limited) == []

    await limited.limit_topic(running=2)  # another server goes on with the mark
    assert await running(limited) == await counted(limited) == 3
    assert await limited.agrees()


async def test_mark_that_was_replaced_counts_nothing(limited: Limited) -> None:
    """The first server has waited for starts before its own mark. Between the two marks others began."""
    marks = []
    for _ in range(2):
        marks.append(await limited.connection.fetchval(_SQL["mark_topic"], TOPIC))
        assert await limited.connection.fetchval("SELECT pulse.unmark_topic_v1($1, $2)", TOPIC, marks[-1])
    marks.append(await limited.connection.fetchval(_SQL["mark_topic"], TOPIC))
    met = [
        await limited.connection.fetchval(
            _SQL["limit_topic"],
            TOPIC,
            TOPIC,
            False,
            None,
            None,
            None,
            False,
            None,
            False,
            1,
            None,
            None,
            mark,
        )
        for mark in [None, *marks]
    ]
    assert met == ["unmarked", "unmarked", "unmarked", "in force"]
    assert not await limited.connection.fetchval("SELECT pulse.unmark_topic_v1($1, NULL)", TOPIC)
    assert await plain(limited) == []


async def test_topic_is_claimed_again_if_a_server_was_killed_after_its_mark(limited: Limited) -> None:
    await limited.submit(a_job(TOPIC))
    await limited.connection.execute(_SQL["mark_topic"].replace("$1", f"'{TOPIC}'"))
    assert await plain(limited) == []

    assert await limited.limits.unmark([TOPIC]) == [], "the next try limits it"
    assert await limited.limits.unmark([]) == [TOPIC]

    assert len(await plain(limited)) == 1
    assert await limited.limits.unmark([]) == []


async def test_pause_of_a_marked_topic_outlives_the_mark(limited: Limited) -> None:
    await limited.connection.execute(_SQL["mark_topic"].replace("$1", f"'{TOPIC}'"))
    await limited.connection.execute("UPDATE pulse.barred_topics SET paused = true")
    assert await limited.limits.unmark([]) == [TOPIC]
    (switch,) = await limited.connection.fetch("SELECT paused, limited FROM pulse.barred_topics")
    assert tuple(switch) == (True, False)
    await limited.limit_topic(running=1)
    (switch,) = await limited.connection.fetch("SELECT paused, limited FROM pulse.barred_topics")
    assert tuple(switch) == (True, True)


async def test_servers_that_set_the_first_limit_at_once_count_each_run_once(
    limited: Limited, shared_dsn: str
) -> None:
    databases = [Database(shared_dsn) for _ in range(3)]
    try:
        for number in range(6):
            await limited.submit(*(a_job(TOPIC) for _ in range(20)))
            claims = asyncio.gather(*(plain(limited, 2) for _ in range(5)))
            answers = await asyncio.gather(
                *(PostgresLimitRepo(database).limit_topic(TOPIC, {"running": 30}) for database in databases)
            )
            await claims
            assert answers == [None] * 3
            assert await running(limited) == await counted(limited), number
            assert await limited.agrees()
            assert await limited.limits.retire(TOPIC) is None
            await eventually(limited.limits.remove_retired, "the topic is plain")
    finally:
        for database in databases:
            await database.close()
