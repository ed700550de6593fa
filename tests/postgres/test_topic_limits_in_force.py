"""Limits are put in force by every server, follow their owners, and survive their workers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from pulse.topic_settings import Entries, Rate
from pulse_server.base.errors import InvalidArgument, LimitsPending
from pulse_server.database.connections import Database
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.service import SettingsOfTopics
from pulse_server.topics.store import PostgresLimitRepo, PostgresTopicSettings
from pulse_server.views.servers import Servers
from tests.eventually import eventually
from tests.fakes.store import LEASE, a_job, room, token
from tests.postgres.glance import servers_on
from tests.postgres.interface import complete
from tests.postgres.sessions import Connection

MINUTE = timedelta(minutes=1)
LIMIT_10, LIMIT_20 = {"running": 10}, {"running": 20}


class SilentPublisher(Publisher):
    """Publishes nothing, and counts the announcements to other servers."""

    def __init__(self) -> None:
        self.announced = 0

    def settings_changed(self) -> None:
        self.announced += 1

    def limits_changed(self, topics: Collection[str]) -> None:
        pass


@dataclass
class Server:
    """What one server does about limits."""

    topics: SettingsOfTopics
    limits: PostgresLimitRepo
    owners: PostgresTopicSettings
    servers: Servers
    connection: Connection
    publisher: SilentPublisher
    database: Database
    id: str = "00000000-0000-4000-8000-000000000001"
    refreshed: list[None] = field(default_factory=list)

    async def in_force(self) -> dict[str, Entries]:
        return {known.topic: known.in_force for known in await self.limits.list_limits(limit=100)}

    async def connect(self, *workers: str, topics: tuple[str, ...] = ("mail",)) -> None:
        """These workers are connected from now on, and no others."""
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        connected = [ConnectedWorker(worker, topics, 1, long_ago) for worker in workers]
        await self.servers.record_server(self.id, "server", connected, None)
        await self.topics.apply()

    async def wait_out_grace(self) -> None:
        """Time passes for workers that have left."""
        await self.connection.execute(
            "UPDATE pulse.topic_settings SET missing_since = missing_since - interval '31 seconds'"
        )
        await self.topics.apply()


def make_server(database: Database, connection: Connection) -> Server:
    limits, owners = PostgresLimitRepo(database), PostgresTopicSettings(database)
    publisher = SilentPublisher()
    refreshed: list[None] = []

    async def refresh() -> None:
        refreshed.append(None)

    topics = SettingsOfTopics(owners, limits, publisher, refresh, {"max_attempts": 5}, interval=MINUTE)
    servers = servers_on(database)
    return Server(topics, limits, owners, servers, connection, publisher, database, refreshed=refreshed)


@pytest.fixture
async def database(shared_dsn: str) -> AsyncIterator[Database]:
    database = Database(shared_dsn)
    yield database
    await database.close()


@pytest.fixture
async def server(database: Database, connection: Connection) -> Server:
    await connection.execute("DELETE FROM pulse.servers")
    return make_server(database, connection)


async def test_declared_limit_is_in_force_when_the_declaration_returns(server: Server) -> None:
    await server.topics.declare({"mail": LIMIT_10, "sms": {}}, "w1")
    assert await server.in_force() == {"mail": LIMIT_10}
    assert server.publisher.announced == 1
    assert server.refreshed


async def test_worker_that_declares_nothing_sends_no_statement(server: Server) -> None:
    await server.topics.declare({"mail": {}}, "w1")
    assert server.publisher.announced == 0


async def test_lower_limit_counts_from_the_first_new_worker_and_higher_one_from_the_last_old_one(
    server: Server,
) -> None:
    await server.topics.declare({"mail": LIMIT_20}, "old")
    await server.connect("old")
    await server.topics.declare({"mail": LIMIT_10}, "new")
    assert await server.in_force() == {"mail": LIMIT_10}

    await server.connect("old", "new")
    await server.topics.declare({"mail": LIMIT_20}, "newest")
    await server.connect("new", "newest")
    await server.wait_out_grace()
    assert await server.in_force() == {"mail": LIMIT_10}
    await server.connect("newest")
    assert await server.in_force() == {"mail": LIMIT_10}
    await server.wait_out_grace()
    assert await server.in_force() == {"mail": LIMIT_20}


async def test_limit_stands_while_no_worker_is_connected(server: Server) -> None:
    await server.topics.declare({"mail": LIMIT_10}, "w1")
    await server.connect("w1")
    await server.connect()
    await server.wait_out_grace()
    assert await server.in_force() == {"mail": LIMIT_10}


async def test_limit_ends_with_the_last_worker_that_declares_one(server: Server) -> None:
    await server.topics.declare({"mail": LIMIT_10}, "old")
    await server.connect("old", "new")
    await server.connect("new")
    assert await server.in_force() == {"mail": LIMIT_10}
    await server.wait_out_grace()
    assert await server.in_force() == {}


async def test_worker_that_restarts_without_a_limit_takes_its_declaration_back(server: Server) -> None:
    await server.topics.declare({"mail": LIMIT_10}, "w1")
    await server.topics.declare({"mail": {}}, "w1")
    assert await server.in_force() == {}
    await server.topics.apply()
    assert await server.owners.read_owners() == []


async def test_operator_wins_and_hands_back(server: Server) -> None:
    await server.topics.declare({"mail": LIMIT_10}, "w1")
    rate = Rate(100, MINUTE)
    await server.topics.set("mail", {"running": 50, "rate": rate}, (), "ada")
    assert await server.in_force() == {"mail": {"running": 50, "rate": rate}}
    (owner,) = await server.owners.read_owners(["mail"])
    assert (owner.operator, owner.declared, owner.set_by) == ({"running": 50, "rate": rate}, LIMIT_10, "ada")

    await server.topics.set("mail", {}, ["running"], "ada")
    assert await server.in_force() == {"mail": {"running": 10, "rate": rate}}
    await server.topics.set("mail", {}, ["rate"], "ada")
    assert await server.in_force() == {"mail": LIMIT_10}


async def test_removed_policy_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await server.topics.set("mail", LIMIT_10, (), "ada")
    await server.topics.set("mail", {}, ("running",), "ada")
    (logged,) = [record for record in caplog.records if record.message == "limits_removed"]
    assert logged.__dict__["topics"] == ["mail"]


async def test_limit_of_an_operator_alone_ends_when_it_is_handed_back(server: Server) -> None:
    await server.topics.set("mail", LIMIT_10, (), "ada")
    await server.topics.set("mail", {}, ["running"], "ada")
    assert await server.in_force() == {}
    assert await server.connection.fetchval("SELECT count(*) FROM pulse.topic_settings") == 0
    assert await server.connection.fetchval("SELECT count(*) FROM pulse.limit_policies") == 0


async def test_policy_of_all_entries_is_read_back_as_it_was_given(server: Server) -> None:
    policy = {
        "running": 5,
        "rate": Rate(100, MINUTE),
        "pool": "gpu",
        "per_lane": 2,
        "lane_rate": Rate(3, timedelta(milliseconds=1500)),
        "turns": True,
        "aging": timedelta(minutes=5),
    }
    await server.topics.set("mail", policy, (), "ada")
    assert await server.in_force() == {"mail": policy}
    (owner,) = await server.owners.read_owners()
    assert owner.operator == policy


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ({"per_lane": 5}, "make it 1"),
        ({"pool": "gpu"}, "neither running nor a rate"),
    ],
)
async def test_override_that_cannot_hold_beside_what_is_declared_is_refused(
    server: Server, override: Entries, sentence: str
) -> None:
    await server.topics.declare({"mail": {"ordered": True}}, "w1")
    with pytest.raises(InvalidArgument, match=sentence):
        await server.topics.set("mail", override, (), "ada")
    assert await server.connection.fetchval("SELECT count(*) FROM pulse.topic_settings WHERE owner = ''") == 0


async def test_change_that_fails_half_way_stores_nothing_of_it(server: Server) -> None:
    change = {"keep_completed": timedelta(seconds=1), **LIMIT_10}
    with pytest.raises(asyncpg.CheckViolationError):  # the database refuses the retention
        await server.topics.set("mail", change, (), "ada")
    assert await server.owners.read_owners() == []
    assert await server.in_force() == {}


async def test_two_servers_at_once_put_the_same_in_force(database: Database, connection: Connection) -> None:
    one, other = make_server(database, connection), make_server(database, connection)
    await asyncio.gather(
        one.topics.declare({"mail": LIMIT_20, "sms": LIMIT_10}, "w1"),
        other.topics.declare({"mail": LIMIT_10, "sms": LIMIT_20}, "w2"),
        one.topics.set("push", LIMIT_10, (), "ada"),
        other.topics.set("push", {"per_lane": 1}, (), "bob"),
    )
    assert await one.in_force() == {
        "mail": LIMIT_10,
        "sms": LIMIT_10,
        "push": {"running": 10, "per_lane": 1, "turns": True},
    }


@asynccontextmanager
async def job_locked(server: Server, dsn: str) -> AsyncIterator[str]:
    """A running job of the topic mail is locked, as by ctx.complete in an open transaction."""
    store = PostgresJobRepo(server.database)
    await store.insert_jobs([a_job("mail")])
    (job,) = await store.claim_batch(["mail"], room("A", 1), LEASE)
    shop = await asyncpg.connect(dsn, server_settings={"application_name": "shop"})
    async with shop.transaction():
        await complete(shop, token(job))
        user = await shop.fetchval("SELECT current_user")
        yield f"in force once pid {shop.get_server_pid()} (shop, user {user}) has ended"
    await shop.close()


async def test_pending_limit_is_put_in_force_by_any_server(
    server: Server, database: Database, connection: Connection, shared_dsn: str
) -> None:
    """The server that has accepted it may be killed."""
    other = make_server(database, connection)
    async with job_locked(server, shared_dsn) as clause:
        await server.topics.set("mail", LIMIT_10, (), "ada")
        await server.topics.set("sms", LIMIT_20, (), "ada")
        assert server.topics.pending == {"mail": clause}
        await other.topics.apply()
        assert other.topics.pending == {"mail": clause}
        assert await server.in_force() == {"sms": LIMIT_20}, "it delays no other topic"
    await other.topics.apply()
    assert await server.in_force() == {"mail": LIMIT_10, "sms": LIMIT_20}
    assert not other.topics.pending
    await server.topics.apply()
    assert not server.topics.pending


async def test_pending_limit_that_is_taken_back_leaves_nothing(server: Server, shared_dsn: str) -> None:
    async with job_locked(server, shared_dsn):
        await server.topics.set("mail", LIMIT_10, (), "ada")
        await server.topics.set("mail", {}, ["running"], "ada")
        assert not server.topics.pending
    assert await server.in_force() == {}
    for table in ("pools", "limit_policies", "barred_topics", "topic_settings", "topic_rules"):
        assert not await server.connection.fetch(f"SELECT * FROM pulse.{table}")


async def plain_claim(server: Server) -> int:
    """How many jobs of the topic mail a claim of plain topics takes."""
    store = PostgresJobRepo(server.database)
    return len(await store.claim_batch(["mail"], room("A", 5), LEASE))


async def test_topic_that_is_paused_and_resumed_while_its_first_limit_is_tried_goes_on(
    server: Server, shared_dsn: str
) -> None:
    """A pause waits for the try, and writes the row of its mark before the try takes the mark back."""
    dispatch = PostgresDispatchRepo(server.database)
    async with job_locked(server, shared_dsn) as clause:
        await PostgresJobRepo(server.database).insert_jobs([a_job("mail")])
        setting = asyncio.ensure_future(server.topics.set("mail", LIMIT_10, (), "ada"))
        locked_mark = "SELECT true FROM pulse.barred_topics WHERE limited AND xmax <> '0'"
        await eventually(lambda: server.connection.fetchval(locked_mark), "a try has the mark locked")
        await dispatch.pause_topic("mail", "")
        await setting
        await dispatch.resume_topic("mail")

        assert server.topics.pending == {"mail": clause}
        assert await plain_claim(server) == 1
    await server.topics.apply()
    assert await server.in_force() == {"mail": LIMIT_10}


async def test_pending_topic_goes_on_if_a_server_was_killed_after_its_mark(
    server: Server, shared_dsn: str
) -> None:
    """Other servers only look at the transaction that they have met, and would never set a mark."""
    async with job_locked(server, shared_dsn):
        await PostgresJobRepo(server.database).insert_jobs([a_job("mail")])
        await server.topics.set("mail", LIMIT_10, (), "ada")
        await server.connection.execute("INSERT INTO pulse.barred_topics VALUES ('mail', false, true)")
        await server.topics.apply()
        assert await plain_claim(server) == 1


async def test_pending_limit_of_a_worker_is_declared_again(server: Server, shared_dsn: str) -> None:
    """It starts no job before its limit is in force."""
    async with job_locked(server, shared_dsn) as clause:
        with pytest.raises(
            LimitsPending, match=re.escape(f"The limits of 'mail' are accepted, and {clause}.")
        ):
            await server.topics.declare({"mail": LIMIT_10, "sms": LIMIT_20}, "w1")
        await server.topics.declare({"sms": LIMIT_20}, "w2")
    await server.topics.declare({"mail": LIMIT_10, "sms": LIMIT_20}, "w1")
    assert await server.in_force() == {"mail": LIMIT_10, "sms": LIMIT_20}


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_server_that_was_killed_between_its_mark_and_the_limit_is_replaced(
    server: Server, is_wanted: bool
) -> None:
    """From the mark on no claim takes jobs of the topic."""
    if is_wanted:
        await server.owners.declare_topics({"mail": LIMIT_10}, "w1")
    else:
        await server.owners.declare_topics({"sms": LIMIT_10}, "w1")
    await server.connection.execute("INSERT INTO pulse.barred_topics VALUES ('mail', false, true)")

    await server.topics.apply()

    assert await server.in_force() == {"mail" if is_wanted else "sms": LIMIT_10}
    barred = await server.connection.fetch("SELECT topic FROM pulse.barred_topics")
    assert [row["topic"] for row in barred] == ["mail" if is_wanted else "sms"]


async def test_server_that_starts_ends_the_mark_of_one_that_was_killed(server: Server) -> None:
    await server.connection.execute("INSERT INTO pulse.barred_topics VALUES ('mail', false, true)")
    await server.topics.prime()
    assert not await server.connection.fetch("SELECT topic FROM pulse.barred_topics")


async def test_limit_whose_owner_was_forgotten_meanwhile_ends(server: Server) -> None:
    """Another server has seen the entry, and has put it in force after it was taken back."""
    await server.limits.limit_topic("mail", LIMIT_10)
    await server.topics._apply_once(["mail"])
    assert await server.in_force() == {}


async def test_round_without_news_changes_nothing(server: Server) -> None:
    await server.topics.declare({"mail": {"running": 10, "ordered": True, "aging": MINUTE}}, "w1")
    before = len(server.refreshed)
    await server.connect("w1")
    await server.topics.apply()
    assert len(server.refreshed) == before


async def test_policy_that_has_no_owner_is_left_alone(server: Server) -> None:
    await server.limits.limit_topic("mail", LIMIT_10)
    await server.topics.apply()
    assert await server.in_force() == {"mail": LIMIT_10}


async def test_difference_between_workers_is_logged_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    await server.topics.declare({"mail": LIMIT_10}, "w1")
    await server.topics.declare({"mail": LIMIT_20}, "w2")
    await server.topics.apply()
    logged = [record for record in caplog.records if record.message == "limits_differ"]
    assert len(logged) == 1
    assert (vars(logged[0])["topic"], vars(logged[0])["workers"]) == ("mail", ["w1", "w2"])


async def test_limit_that_is_reset_beside_another_entry_ends(server: Server) -> None:
    """The row of the operators stays, without a limit."""
    await server.topics.set("mail", {"running": 10, "max_attempts": 3}, (), "ada")
    await server.topics.set("mail", {}, ["running"], "ada")
    assert await server.in_force() == {}
    (owner,) = await server.owners.read_owners(["mail"])
    assert owner.operator == {"max_attempts": 3}


async def test_worker_that_withdraws_its_limit_alone_ends_it(server: Server) -> None:
    await server.topics.declare({"mail": {"running": 10, "max_attempts": 3}}, "w1")
    await server.topics.declare({"mail": {"max_attempts": 3}}, "w1")
    assert await server.in_force() == {}


async def test_how_jobs_run_stays_declared_when_the_limits_of_a_worker_are_forgotten(server: Server) -> None:
    await server.topics.declare({"mail": {"running": 10, "max_attempts": 3}}, "old")
    await server.topics.declare({"mail": {"running": 20, "max_attempts": 3}}, "new")
    await server.connect("old", "new")
    await server.connect("new")
    await server.connection.execute(
        "UPDATE pulse.topic_settings SET missing_since = missing_since - interval '1 hour'"
    )
    await server.connect("other")
    (owner,) = await server.owners.read_owners(["mail"])
    assert [each.entries for each in owner.declarations] == [LIMIT_20]
    assert (owner.runs, owner.runs_by) == ({"max_attempts": 3}, "old")


async def test_worker_that_withdraws_how_jobs_run_leaves_the_limits_of_others(server: Server) -> None:
    """It has not been connected for long enough, to show that it declares no limit."""
    await server.topics.declare({"mail": {"running": 10, "max_attempts": 3}}, "old")
    await server.connect("old")
    await server.connect()
    await server.wait_out_grace()
    await server.topics.declare({"mail": {}}, "new")
    assert await server.in_force() == {"mail": LIMIT_10}
    (owner,) = await server.owners.read_owners(["mail"])
    assert owner.runs == {}
