"""The switches in the database: what they remember, and that a claim looks at them itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pulse.topic_settings import Rate
from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import HOT_PLANS, Database
from pulse_server.dispatch.rules import DispatchState
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.reports import Taker
from tests.fakes.store import LEASE, Store, a_job
from tests.postgres import large_tables
from tests.postgres.hot_statements import claim
from tests.postgres.limited import Limited
from tests.postgres.query_plans import explain
from tests.postgres.sessions import Connection
from tests.postgres_cluster import SECRET

SECONDLY = Rate(5, timedelta(seconds=1))


@pytest.fixture
async def switches(shared_dsn: str, connection: Connection) -> AsyncIterator[PostgresDispatchRepo]:
    database = Database(shared_dsn)
    yield PostgresDispatchRepo(database)
    await database.close()


async def test_new_database_is_open(switches: PostgresDispatchRepo) -> None:
    assert await switches.read_gate() == DispatchState(secret=SECRET)


async def test_pause_has_its_reason_and_its_start(
    switches: PostgresDispatchRepo, connection: Connection
) -> None:
    before = await connection.fetchval("SELECT clock_timestamp()")
    await switches.pause_everything("the mail server is düwn")
    await switches.pause_topic("mail", "quota")
    after = await connection.fetchval("SELECT clock_timestamp()")

    state = await switches.read_gate()

    assert state.everything is not None
    assert state.everything.reason == "the mail server is düwn"
    assert state.topics["mail"].reason == "quota"
    assert before <= state.everything.since <= state.topics["mail"].since <= after


async def test_pausing_again_keeps_since_when_and_takes_the_new_reason(
    switches: PostgresDispatchRepo,
) -> None:
    for reason in ("first", "second"):
        await switches.pause_everything(reason)
        await switches.pause_topic("mail", reason)
        if reason == "first":
            first = await switches.read_gate()
    second = await switches.read_gate()

    assert first.everything is not None
    assert second.everything is not None
    assert second.everything.since == first.everything.since
    assert second.topics["mail"].since == first.topics["mail"].since
    assert (second.everything.reason, second.topics["mail"].reason) == ("second", "second")


async def test_pause_after_a_resume_counts_from_anew(switches: PostgresDispatchRepo) -> None:
    await switches.pause_everything("first")
    first = (await switches.read_gate()).everything
    await switches.resume_everything()
    await switches.pause_everything("second")
    second = (await switches.read_gate()).everything

    assert first is not None
    assert second is not None
    assert second.since > first.since


async def test_topics_and_everything_are_switches_of_their_own(switches: PostgresDispatchRepo) -> None:
    await switches.pause_everything("all")
    await switches.pause_topic("mail", "one")
    await switches.pause_topic("image", "another")

    await switches.resume_topic("mail")
    still = await switches.read_gate()
    assert still.everything is not None
    assert still.topics.keys() == {"image"}

    await switches.resume_everything()
    left = await switches.read_gate()
    assert left.everything is None
    assert left.topics.keys() == {"image"}


async def test_resume_of_what_is_not_paused_changes_nothing(switches: PostgresDispatchRepo) -> None:
    await switches.resume_everything()
    await switches.resume_topic("mail")

    assert await switches.read_gate() == DispatchState(secret=SECRET)


async def test_limited_topics_are_read_with_their_pools_paused_or_not(
    switches: PostgresDispatchRepo, limited: Limited
) -> None:
    await limited.limit_topic("sync", running=1)
    await limited.limit_topic("train", running=1, pool="gpu")
    pools = {"sync": "sync", "train": "gpu"}
    ahead = frozenset(pools)
    assert await switches.read_gate() == DispatchState(secret=SECRET, limited=pools, ahead=ahead)

    await switches.pause_topic("sync", "quota")
    paused = await switches.read_gate()
    assert (paused.topics.keys(), paused.limited) == ({"sync"}, pools)

    await switches.resume_topic("sync")
    assert await switches.read_gate() == DispatchState(secret=SECRET, limited=pools, ahead=ahead)


@pytest.mark.parametrize(
    "entries",
    [{"rate": SECONDLY}, {"lane_rate": SECONDLY}, {"ordered": True}, {"running": 5, "ordered": True}],
)
async def test_topics_with_a_rate_or_an_order_may_not_run_ahead(
    switches: PostgresDispatchRepo, limited: Limited, entries: dict[str, Any]
) -> None:
    await limited.limit_topic("sync", **entries)
    await limited.limit_topic("mail", per_lane=1)
    assert (await switches.read_gate()).ahead == {"mail"}


async def test_missing_switch_is_reported_and_nothing_is_claimed(
    switches: PostgresDispatchRepo, store: Store, connection: Connection
) -> None:
    await store.submit(a_job())
    await connection.execute("DELETE FROM pulse.dispatch_control")
    try:
        with pytest.raises(Unavailable, match=r"dispatch_control is missing.*Put it back: INSERT INTO"):
            await switches.read_gate()
        assert await store.claim() == []
    finally:
        await connection.execute("INSERT INTO pulse.dispatch_control (id) VALUES (1)")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO pulse.dispatch_control (id) VALUES (2)",
        "INSERT INTO pulse.dispatch_control (id) VALUES (1)",
        "UPDATE pulse.dispatch_control SET paused = true",
        "UPDATE pulse.dispatch_control SET paused_at = now()",
    ],
)
async def test_table_of_the_switch_is_one_row_with_its_time(connection: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await connection.execute(statement)


# --- the claim


async def test_claim_takes_nothing_while_everything_is_paused(
    switches: PostgresDispatchRepo, store: Store
) -> None:
    (job_id,) = await store.submit(a_job())
    await switches.pause_everything("")

    assert await store.claim() == []
    await switches.resume_everything()
    assert [claim.job_id for claim in await store.claim()] == [job_id]


async def test_claim_passes_over_a_paused_topic_and_takes_the_others(
    switches: PostgresDispatchRepo, store: Store
) -> None:
    mail, image = await store.submit(a_job("mail", priority=9), a_job("image"))
    await switches.pause_topic("mail", "")

    assert [claim.job_id for claim in await store.claim("A", 5, topics=["mail", "image"])] == [image]
    await switches.resume_topic("mail")
    assert [claim.job_id for claim in await store.claim("A", 5, topics=["mail", "image"])] == [mail]


async def test_paused_dispatch_lets_everything_but_the_claim_go_on(
    switches: PostgresDispatchRepo, store: Store
) -> None:
    running, given_back = await store.start(), await store.start()
    await switches.pause_everything("")

    assert await store.submit(a_job())
    assert set(await store.repo.complete_jobs([running])) == {running}
    assert await store.repo.release_jobs([given_back])


async def test_claim_that_began_before_the_pause_was_committed_is_the_last(
    switches: PostgresDispatchRepo, store: Store, second_connection: Connection
) -> None:
    """A change of the switch waits for no claim: one that does not see it yet goes through."""
    await store.submit(a_job(), a_job())
    async with second_connection.transaction():
        await second_connection.execute("UPDATE pulse.dispatch_control SET paused = true, paused_at = now()")
        assert len(await store.claim()) == 1

    assert await store.claim() == []


@pytest.mark.parametrize("pause", ["UPDATE pulse.dispatch_control SET paused = true, paused_at = now()", ""])
@pytest.mark.parametrize("name", ["claim_batch", "claim_across_topics"])
async def test_claim_while_paused_looks_at_no_job(
    shared_dsn: str, connection: Connection, pause: str, name: str
) -> None:
    await large_tables.add_backlog(connection, 2000)
    await connection.execute(
        pause or "INSERT INTO pulse.barred_topics SELECT 'topic-' || n FROM generate_series(0, 4) AS n"
    )
    planner = await asyncpg.connect(shared_dsn, timeout=60, server_settings=HOT_PLANS)
    try:
        args = [*(claim(1) if name == "claim_batch" else claim(5)), "NULL", "NULL"]
        args += ["100", "10"] if name == "claim_across_topics" else []
        plan = await explain(planner, name, *args)
    finally:
        planner.terminate()

    assert plan.rows_touched() == 0, plan


@pytest.mark.parametrize("paused", [None, "email"])
async def test_new_job_is_not_handed_over_while_its_topic_is_paused(
    store: Store, switches: PostgresDispatchRepo, paused: str | None
) -> None:
    await (switches.pause_topic(paused, "") if paused else switches.pause_everything(""))
    held_back, other = a_job("email"), a_job("sms")

    answers = await store.repo.hand_over_jobs([held_back, other], [Taker("A", True)] * 2, LEASE)

    assert answers == [
        Submitted(held_back.id, False),
        Submitted(other.id, False, is_taken=paused is not None),
    ]
    assert (await store.job(held_back.id)).ready


@pytest.mark.parametrize("paused", [None, "email", "sms"])
async def test_lone_job_is_not_handed_over_while_its_topic_is_paused(
    store: Store, switches: PostgresDispatchRepo, paused: str | None
) -> None:
    await (switches.pause_topic(paused, "") if paused else switches.pause_everything(""))
    job = a_job("email")

    answers = await store.repo.hand_over_jobs([job], [Taker("A", True)], LEASE)

    assert answers == [Submitted(job.id, False, is_taken=paused == "sms")]


async def test_switches_that_did_not_change_are_not_read_apart_again(
    switches: PostgresDispatchRepo, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO pulse.barred_topics (topic) SELECT 'topic-' || n FROM generate_series(1, 3000) AS n"
    )
    before = (await switches.read_gate()).topics

    assert (len(before), (await switches.read_gate()).topics is before) == (3000, True)

    await switches.resume_topic("topic-7")
    assert len((await switches.read_gate()).topics) == 2999
