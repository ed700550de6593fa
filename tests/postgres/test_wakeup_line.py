"""LISTEN and NOTIFY between two replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pulse_server import tuning
from pulse_server.domain.jobs import Claim
from pulse_server.postgres.connector import Connector
from pulse_server.postgres.wakeups import PostgresWakeupLine
from pulse_server.repos.wakeups import Wakeup
from tests.postgres.sessions import Connection, cut_sessions

EVERYWHERE = Wakeup(topics=None)
AFTER_A_BREAK = Wakeup(topics=None, gate_changed=True)


class Replica:
    """A line that is up, and a queue of what it heard."""

    def __init__(self, dsn: str) -> None:
        self.line = PostgresWakeupLine(Connector(dsn))
        self.heard: asyncio.Queue[Wakeup] = asyncio.Queue()
        self.line.listen(self.heard.put_nowait)
        self.task = asyncio.create_task(self.line.run())

    async def next_wakeup(self) -> Wakeup:
        return await asyncio.wait_for(self.heard.get(), 20)


@pytest.fixture
async def replicas(shared_dsn: str) -> AsyncIterator[tuple[Replica, Replica]]:
    pair = Replica(shared_dsn), Replica(shared_dsn)
    for replica in pair:
        assert await replica.next_wakeup() == AFTER_A_BREAK
    yield pair
    for replica in pair:
        replica.task.cancel()
    await asyncio.gather(*[replica.task for replica in pair], return_exceptions=True)


async def test_other_replica_hears_of_topics_and_ended_claims(replicas: tuple[Replica, Replica]) -> None:
    here, there = replicas
    claim = Claim("j", "wörker", 3)

    here.line.announce(Wakeup(frozenset({"email", "sms"}), (claim,)))

    assert await there.next_wakeup() == Wakeup(frozenset({"email", "sms"}), (claim,))


async def test_other_replica_hears_that_the_pause_switch_was_turned(
    replicas: tuple[Replica, Replica],
) -> None:
    here, there = replicas

    here.line.announce(Wakeup(gate_changed=True))

    assert await there.next_wakeup() == Wakeup(gate_changed=True)


async def test_replica_does_not_hear_itself(replicas: tuple[Replica, Replica]) -> None:
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


async def test_message_that_would_not_fit_means_everywhere(replicas: tuple[Replica, Replica]) -> None:
    """A payload of 8,000 bytes is an error to Postgres, and would take the line down."""
    here, there = replicas
    topics = frozenset(f"{number:0255}" for number in range(40))
    ended = tuple(Claim(f"{number:036}", "ü" * 255, 1000) for number in range(100))

    here.line.announce(Wakeup(topics))
    assert await there.next_wakeup() == EVERYWHERE
    here.line.announce(Wakeup(ended=ended))
    assert await there.next_wakeup() == EVERYWHERE
    here.line.announce(Wakeup(frozenset({"email"})))
    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


async def test_nothing_announced_is_nothing_sent(replicas: tuple[Replica, Replica]) -> None:
    here, there = replicas
    here.line.announce(Wakeup())
    here.line.announce(Wakeup(frozenset({"email"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


@pytest.mark.parametrize("payload", ["", "garbage", "[]", "{}", '{"topics": [], "ended": [1]}', "null"])
async def test_foreign_message_is_passed_over(
    replicas: tuple[Replica, Replica], connection: Connection, payload: str
) -> None:
    here, there = replicas
    await connection.execute("SELECT pg_notify($1, $2)", tuning.NOTIFY_CHANNEL, payload)
    here.line.announce(Wakeup(frozenset({"email"})))

    assert await there.next_wakeup() == Wakeup(frozenset({"email"}))


async def test_line_that_was_cut_comes_back_and_looks_everywhere(
    replicas: tuple[Replica, Replica], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LISTEN_RETRY", tuning.NOTIFY_SPACING)
    here, there = replicas

    for _ in range(5):  # the end of a session may be noticed before, while or after a message is sent
        await cut_sessions(connection, "pulsed wakeups")
        here.line.announce(Wakeup(frozenset({"email"})))
        for replica in (here, there):
            async with asyncio.timeout(20):
                while await replica.next_wakeup() != AFTER_A_BREAK:
                    continue
