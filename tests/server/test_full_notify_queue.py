"""A role that may only connect fills the NOTIFY queue of the database server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from pulse_server.database.schema import apply_migrations
from pulse_server.wakeups.line import NOTIFY_SPACING
from pulse_server.wakeups.watchers import Wakeup
from tests.eventually import eventually
from tests.postgres.test_wakeup_line import Replica
from tests.postgres_cluster import FAST_SETTINGS
from tests.server.outage_postgres import OutagePostgres

FULL = "The NOTIFY queue of the database server is full"


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutagePostgres]:
    # The smallest queue: half a megabyte.
    settings = FAST_SETTINGS | {"max_notify_queue_pages": "64"}
    database = OutagePostgres(tmp_path_factory.mktemp("full") / "cluster", settings)
    database.start()
    asyncio.run(apply_migrations(database.dsn))
    yield database
    database.close()


async def fill(listener: asyncpg.Connection, sender: asyncpg.Connection) -> None:
    """Fill the queue, and keep it full for as long as the listener is in its transaction."""
    await listener.execute("LISTEN anything")
    await listener.execute("BEGIN")
    await listener.execute("SELECT")
    with pytest.raises(asyncpg.ProgramLimitExceededError):
        await send_without_end(sender)


async def send_without_end(sender: asyncpg.Connection) -> None:
    while True:
        await sender.execute(
            "SELECT pg_notify('anything', n || repeat('x', 7900)) FROM generate_series(1, 8) n"
        )


async def test_line_is_down_while_the_queue_is_full_and_comes_back(
    database: OutagePostgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Postgres does not empty a full queue by itself once its slowest reader has gone."""
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", NOTIFY_SPACING)
    caplog.set_level("INFO")
    replicas = here, there = Replica(database.dsn), Replica(database.dsn)
    for replica in replicas:
        await replica.next_wakeup()
    listener, sender = await asyncpg.connect(database.dsn), await asyncpg.connect(database.dsn)
    await fill(listener, sender)

    here.line.announce(Wakeup(frozenset({"email"})))
    await eventually(lambda: "wakeups_down" in caplog.messages, "the line is down")
    for _ in range(50):  # it is tried again
        await asyncio.sleep(NOTIFY_SPACING.total_seconds())
    assert "wakeups_recovered" not in caplog.messages

    await listener.execute("ROLLBACK")
    assert await there.next_wakeup() == Wakeup(topics=None)
    assert caplog.messages.count("wakeups_down") == caplog.messages.count("wakeups_recovered") == 1

    await fill(listener, sender)
    late = Replica(database.dsn)
    await eventually(lambda: caplog.messages.count("wakeups_down") == 2, "the line of a new server is down")
    assert vars(caplog.records[-1])["reason"].startswith(FULL)
    for replica in (*replicas, late):
        replica.task.cancel()
    await listener.close()
    await sender.close()
