"""LISTEN and NOTIFY between two replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pulse_server.base.ids import Seal
from pulse_server.database.connector import Connector
from pulse_server.jobs.rules import Claim
from pulse_server.wakeups.line import NOTIFY_SPACING, STRANGE_MESSAGES, PostgresWakeupLine
from pulse_server.wakeups.watchers import Wakeup
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.postgres.sessions import Connection, cut_sessions

EVERYWHERE = Wakeup(topics=None)
AFTER_A_BREAK = Wakeup(topics=None, gate_changed=True, claims_unknown=True, settings_changed=True)


class Replica:
    """A line that is up, and a queue of what it heard."""

    def __init__(self, dsn: str) -> None:
        self.line = PostgresWakeupLine(Connector(dsn))
        self.heard: asyncio.Queue[Wakeup] = asyncio.Queue()
        self.line.listen(self.heard.put_nowait)
        self.task = asyncio.create_task(self.line.run())

    async def next_wakeup(self) -> Wakeup:
        return await asyncio.wait_for(self.heard.get(), PATIENCE_SECONDS)

    async def next_ended(self, count: int) -> list[Claim]:
        """The next so many claims that ended, in as many wake-ups as it takes."""
        ended: list[Claim] = []
        while len(ended) < count:
            ended += (await self.next_wakeup()).ended
        return ended


@pytest.fixture
async def replicas(shared_dsn: str) -> AsyncIterator[tuple[Replica, Replica]]:
    pair = Replica(shared_dsn), Replica(shared_dsn)
    for replica in pair:
        assert await replica.next_wakeup() == AFTER_A_BREAK
    yield pair
    for replica in pair:
        replica.task.cancel()
    await asyncio.gather(*[replica.task for replica in pair], return_exceptions=True)


async def test_other_server_receives_topics_and_ended_claims(replicas: tuple[Replica, Replica]) -> None:
    here, there = replicas
    claim = Claim("j", "wörker", 3, 3)

    here.line.announce(Wakeup(frozenset({"email", "sms"}), (claim,)))

    assert await there.next_wakeup() == Wakeup(frozenset({"email", "sms"}), (claim,))


async def test_other_server_learns_that_dispatch_was_paused(
    replicas: tuple[Replica, Replica],
) -> None:
    here, there = replicas

    here.line.announce(Wakeup(gate_changed=True))

    assert await there.next_wakeup() == Wakeup(gate_changed=True)


async def test_server_does_not_receive_its_own_messages(replicas: tuple[Replica, Replica]) -> None:
    here, there = replicas
    here.line.announce(Wakeup(frozenset({"from-here"})))
    await there.next_wakeup()
    there.line.announce(Wakeup(frozenset({"from-there"})))

    assert await here.next_wakeup() == Wakeup(frozenset({"from-there"}))


async def test_announcements_of_a_moment_go_out_as_one(replicas: tuple[Replica, Replica]) -> None:
    here, there = replicas

    for number in range(5):
        here.line.announce(Wakeup(frozenset({f"t{number}"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"t0", "t1", "t2", "t3", "t4"}))
    assert there.heard.empty()


async def test_topics_that_would_not_fit_mean_everywhere(replicas: tuple[Replica, Replica]) -> None:
    """A payload of 8,000 bytes is an error to Postgres, and would take the line down."""
    here, there = replicas
    topics = frozenset(f"{number:0255}" for number in range(40))

    here.line.announce(Wakeup(topics))
    assert await there.next_wakeup() == EVERYWHERE
    here.line.announce(Wakeup(frozenset({"email"})))
    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


@pytest.mark.parametrize(("worker_id", "count"), [("ü" * 255, 100), ("w1", 20_000)])
async def test_other_server_receives_every_ended_claim(
    replicas: tuple[Replica, Replica], worker_id: str, count: int
) -> None:
    here, there = replicas
    ended = [Claim(f"{number:036}", worker_id, 1000) for number in range(count)]

    here.line.announce(Wakeup(ended=tuple(ended)))

    assert await there.next_ended(count) == ended


async def test_claims_that_ended_while_the_line_was_down_are_announced_once_it_is_up(
    replicas: tuple[Replica, Replica], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", 5 * NOTIFY_SPACING)
    here, there = replicas
    ended = []
    for number in range(20):  # the end of the session is noticed before, while or after a message is sent
        if number == 5:
            await connection.execute("SELECT pg_terminate_backend($1)", here.line._pid)
        ended.append(Claim(f"{number:036}", "w1", 1, 1))
        here.line.announce(Wakeup(ended=(ended[-1],)))
        await asyncio.sleep(0)

    assert set(await there.next_ended(len(ended))) >= set(ended)


async def test_line_that_comes_back_has_its_claims_looked_up(
    replicas: tuple[Replica, Replica], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others announced meanwhile is lost, and no message can name it."""
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", NOTIFY_SPACING)
    _, there = replicas
    await cut_sessions(connection, "pulsed wakeups")

    assert (await there.next_wakeup()).claims_unknown


async def test_nothing_announced_is_nothing_sent(replicas: tuple[Replica, Replica]) -> None:
    here, there = replicas
    here.line.announce(Wakeup())
    here.line.announce(Wakeup(frozenset({"email"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


async def seal_of(connection: Connection) -> Seal:
    return Seal(await connection.fetchval("SELECT secret FROM pulse.cluster_secret"))


WITHOUT_SEAL = ("", "garbage", "[]", "null", "ü" * 2000, '{"topics": null, "ended": [["j", "w", 1, 1]]}')


@pytest.mark.parametrize("payload", WITHOUT_SEAL)
async def test_message_of_a_session_that_knows_only_the_channel_is_passed_over(
    replicas: tuple[Replica, Replica], connection: Connection, payload: str
) -> None:
    here, there = replicas
    await connection.execute("SELECT pg_notify($1, $2)", (await seal_of(connection)).channel, payload)
    here.line.announce(Wakeup(frozenset({"email"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


@pytest.mark.parametrize("message", ["garbage", "[" * 7000, '{"topics": [], "ended": [1]}', "null"])
async def test_sealed_message_that_cannot_be_read_is_passed_over(
    replicas: tuple[Replica, Replica], connection: Connection, message: str
) -> None:
    here, there = replicas
    seal, pid = await seal_of(connection), connection.get_server_pid()
    await connection.execute("SELECT pg_notify($1, $2)", seal.channel, seal.sealed(message, pid))
    here.line.announce(Wakeup(frozenset({"email"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


async def test_message_that_another_session_sends_again_is_passed_over(
    replicas: tuple[Replica, Replica], connection: Connection
) -> None:
    here, there = replicas
    heard: asyncio.Queue[str] = asyncio.Queue()
    channel = (await seal_of(connection)).channel
    await connection.add_listener(channel, lambda *message: heard.put_nowait(message[-1]))
    here.line.announce(Wakeup(frozenset({"email"})))
    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))

    again = await asyncio.wait_for(heard.get(), PATIENCE_SECONDS)
    await connection.execute("SELECT pg_notify($1, $2)", channel, again)
    here.line.announce(Wakeup(frozenset({"sms"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"sms"}))


async def test_name_of_the_channel_is_in_no_statement_that_stays_visible(
    replicas: tuple[Replica, Replica], connection: Connection
) -> None:
    """Members of pg_read_all_stats see the last statement of every session."""
    here, there = replicas
    here.line.announce(Wakeup(frozenset({"email"})))
    await there.next_wakeup()

    rows = await connection.fetch(
        "SELECT query FROM pg_stat_activity "
        "WHERE application_name = 'pulsed wakeups' AND datname = current_database()"
    )

    assert len(rows) == 2
    assert not [row for row in rows if "LISTEN" in row["query"] or "pulse_" in row["query"]]


async def test_flood_closes_the_line_until_the_minute_is_over_and_is_logged_once(
    replicas: tuple[Replica, Replica],
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", NOTIFY_SPACING)
    monkeypatch.setattr("pulse_server.wakeups.line.STRANGE_MINUTE", timedelta(hours=1))
    channel = (await seal_of(connection)).channel
    pids = [replica.line._pid for replica in replicas]

    await connection.execute(
        "SELECT count(pg_notify($1, 'x' || number)) FROM generate_series(1, $2::int) AS number",
        channel,
        10 * STRANGE_MESSAGES,
    )
    await eventually(lambda: all(replica.line._is_down for replica in replicas), "the line is closed")
    await eventually_no_session(connection, pids)

    assert all(replica.line._strangers._count == STRANGE_MESSAGES + 1 for replica in replicas)
    counts = [vars(record)["count"] for record in caplog.records if record.message == "foreign_wakeups"]
    assert counts == [1, 1], "the first message of each server; then once a minute"
    for replica in replicas:
        assert replica.heard.empty()
        replica.line._strangers._minute_ends = 0.0  # the minute is over
        replica.task.cancel()
        replica.task = asyncio.create_task(replica.line.run())
        assert await replica.next_wakeup() == AFTER_A_BREAK


async def eventually_no_session(connection: Connection, pids: list[int]) -> None:
    async def are_gone() -> bool:
        query = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ANY($1)"
        return bool(await connection.fetchval(query, pids))

    await eventually(are_gone, "the sessions of the lines have ended")


async def test_lines_move_to_the_new_channel_once_the_secret_is_replaced(
    connection: Connection, shared_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", NOTIFY_SPACING)
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_CHECK", NOTIFY_SPACING)
    before = await seal_of(connection)
    here, there = Replica(shared_dsn), Replica(shared_dsn)
    for replica in (here, there):
        assert await replica.next_wakeup() == AFTER_A_BREAK

    await connection.execute(
        "UPDATE pulse.cluster_secret SET previous = secret, "
        "secret = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())"
    )
    for replica in (here, there):
        assert await replica.next_wakeup() == AFTER_A_BREAK
    here.line.announce(Wakeup(frozenset({"email"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))
    assert (await seal_of(connection)).channel != before.channel
    for replica in (here, there):
        replica.task.cancel()


async def test_line_without_a_secret_says_how_to_put_it_back(
    connection: Connection,
    shared_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", NOTIFY_SPACING)
    await connection.execute("DELETE FROM pulse.cluster_secret")
    replica = Replica(shared_dsn)
    await eventually(lambda: "wakeups_down" in caplog.messages, "the line is down")
    (down,) = [record for record in caplog.records if record.message == "wakeups_down"]
    statement = "INSERT INTO pulse.cluster_secret DEFAULT VALUES;"
    assert statement in vars(down)["reason"]

    await connection.execute(statement)

    assert await replica.next_wakeup() == AFTER_A_BREAK
    replica.task.cancel()


async def test_line_that_was_cut_comes_back_and_looks_everywhere(
    replicas: tuple[Replica, Replica], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", NOTIFY_SPACING)
    here, there = replicas

    for _ in range(5):  # the end of a session may be noticed before, while or after a message is sent
        await cut_sessions(connection, "pulsed wakeups")
        here.line.announce(Wakeup(frozenset({"email"})))
        for replica in (here, there):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await replica.next_wakeup() != AFTER_A_BREAK:
                    continue
