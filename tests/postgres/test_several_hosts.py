"""A database URL with several hosts: how it is read, and in which order the hosts are asked."""

from __future__ import annotations

import asyncio
import ipaddress
import urllib.parse
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.database.connector import Connector, DatabaseSession, Host, NoHostTakesWrites, hosts_in
from pulse_server.database.rights import wait_until_reachable
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.rows import each_row

SHORT = timedelta(seconds=0.2)
# For a silent host and for one that answers alike, which on a busy machine may take its time.
PATIENT = timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgres://u:p@db/pulse", [("db", 5432)]),
        ("postgres://u:p@db1:5433,db2:5434/pulse", [("db1", 5433), ("db2", 5434)]),
        ("postgresql://u:p%40%2C@db1,db2:5433/pulse?sslmode=require", [("db1", 5432), ("db2", 5433)]),
        ("postgres://db1,db2/pulse?port=6432", [("db1", 6432), ("db2", 6432)]),
        ("postgres://[::1]:5433,[fe80::1]/pulse", [("::1", 5433), ("fe80::1", 5432)]),
        ("postgres://u@/pulse?host=db1,db2&port=5433,5434", [("db1", 5433), ("db2", 5434)]),
        ("postgres://u@/pulse?host=/run/a,/run/b", [("/run/a", 5432), ("/run/b", 5432)]),
        ("postgres://u@%2Frun%2Fa,db2:5433/pulse", [("/run/a", 5432), ("db2", 5433)]),
        ("postgres://u@/pulse?host=%2Frun%2Fa&port=5433", [("/run/a", 5433)]),
        ("postgres:///pulse", []),
    ],
)
def test_hosts_are_read_from_every_form_of_the_url(
    dsn: str, hosts: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPORT", raising=False)

    assert hosts_in(dsn) == tuple(Host(*host) for host in hosts)


def test_ports_of_the_environment_are_for_hosts_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "6000,6001")

    assert hosts_in("postgres://db1,db2:5433/pulse") == (Host("db1", 6000), Host("db2", 5433))


@each_row("dsn", ["postgres://db1:x,db2/pulse", "postgres://u@/pulse?host=a,b,c&port=1,2"])
def test_url_that_cannot_be_read_is_left_to_the_driver_to_refuse(dsn: str) -> None:
    assert not Connector(dsn).has_alternatives


class SilentHost:
    """Accepts connections and never says a word, as a frozen server does."""

    def __init__(self) -> None:
        self.asked = 0
        self.port = 0

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.read()  # to its end: the client gave up
        writer.close()


@pytest.fixture
async def silent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SilentHost]:
    monkeypatch.setattr("pulse_server.database.connector.HOST_TIMEOUT", PATIENT)
    host = SilentHost()
    server = await host.listen()
    yield host
    server.close()


def with_hosts(dsn: str, *first: SilentHost, **changes: str) -> str:
    """The URL with other hosts before its own. Databases of the tests are reached by socket or by name."""
    parts = urllib.parse.urlsplit(dsn)
    query = dict(urllib.parse.parse_qsl(parts.query))
    own = query.pop("host", parts.hostname or ""), query.pop("port", str(parts.port or 5432))
    hosts = [*(("127.0.0.1", str(host.port)) for host in first), own]
    query |= {"host": ",".join(name for name, _ in hosts), "port": ",".join(port for _, port in hosts)}
    netloc = f"{parts.netloc.rpartition('@')[0]}@"
    return parts._replace(netloc=netloc, query=urllib.parse.urlencode(query), **changes).geturl()


def another_name(host: str) -> str:
    """The same host in other letters: a name has a dot at its end, an address is written as one number."""
    if host.startswith("/"):
        return f"{host}/."
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"{host}."
    return str(int(address)) if address.version == 4 else f"[{address.exploded}]"


def named_twice(dsn: str, **changes: str) -> str:
    """The URL with its host under two names."""
    parts = urllib.parse.urlsplit(with_hosts(dsn, **changes))
    query = dict(urllib.parse.parse_qsl(parts.query))
    also = another_name(query["host"])
    query |= {"host": f"{query['host']},{also}", "port": f"{query['port']},{query['port']}"}
    return parts._replace(query=urllib.parse.urlencode(query)).geturl()


async def close(*sessions: DatabaseSession) -> None:
    for session in sessions:
        await session.close(timeout=5)


async def test_silent_host_is_passed_over_and_asked_last_from_then_on(
    shared_dsn: str, silent: SilentHost
) -> None:
    connector = Connector(with_hosts(shared_dsn, silent))

    sessions = [await connector.connect() for _ in range(3)]

    assert silent.asked == 1
    assert all(connector.is_current(session) for session in sessions)
    await close(*sessions)


async def test_pools_find_the_database_behind_a_silent_host(shared_dsn: str, silent: SilentHost) -> None:
    database = Database(with_hosts(shared_dsn, silent))
    await asyncio.gather(*[pool.fetch("ask", "SELECT 1") for pool in database.pools.values()])
    await database.close()


async def test_all_hosts_together_take_no_longer_than_a_connection_may(
    silent: SilentHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.database.connector.HOST_TIMEOUT", timedelta(hours=1))
    monkeypatch.setattr("pulse_server.database.connector.CONNECT_TIMEOUT", SHORT)
    hosts = ",".join(f"{name}:{silent.port}" for name in ("127.0.0.1", "localhost", "127.0.0.2"))

    with pytest.raises(NoHostTakesWrites, match=r"127\.0\.0\.1:\d+ TimeoutError; localhost:"):
        await asyncio.wait_for(Connector(f"postgres://u@{hosts}/pulse").connect(), PATIENCE_SECONDS)


async def test_user_that_every_host_refuses_gets_the_refusal_at_once(shared_dsn: str) -> None:
    twice = named_twice(shared_dsn, path="/no_such_database")
    assert Connector(twice).has_alternatives

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await Connector(twice).connect()
    with pytest.raises(Unavailable, match="refuses the connection"):
        await wait_until_reachable(twice, timedelta(minutes=10))


async def test_connections_of_before_a_move_are_used_no_more(shared_dsn: str, silent: SilentHost) -> None:
    connector = Connector(with_hosts(shared_dsn, silent))
    old, same_age = [await connector.connect() for _ in range(2)]

    connector.leave(old)
    connector.leave(same_age)  # it is known already
    new = await connector.connect()

    assert [connector.is_current(session) for session in (old, same_age, new)] == [False, False, True]
    await close(old, same_age, new)


async def test_arrival_elsewhere_cuts_off_who_still_waits_for_the_old_host(shared_dsn: str) -> None:
    connector = Connector(named_twice(shared_dsn))
    old, idle = [await connector.connect() for _ in range(2)]
    observer = await asyncpg.connect(shared_dsn)
    waiting = asyncio.create_task(old.execute("SELECT pg_sleep(600)"))
    pid = old.get_server_pid()
    asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'"
    await eventually(lambda: observer.fetchval(asked, pid))

    connector.leave(idle)  # so that the other name is asked first
    assert not waiting.done()
    new = await connector.connect()

    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert idle.is_closed()
    assert await new.fetchval("SELECT pg_terminate_backend($1)", pid)
    await new.close(timeout=5)
    await observer.close(timeout=5)


async def test_host_that_answers_after_others_have_moved_is_not_followed(
    shared_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = Connector(named_twice(shared_dsn))
    old = await connector.connect()
    is_asked, is_awake = asyncio.Event(), asyncio.Event()
    open_writable = connector._open_writable

    async def freeze_the_old_host(timeout: timedelta, options: dict[str, Any]) -> DatabaseSession:
        assert old.host is not None
        if options["host"] == old.host.name:
            is_asked.set()
            await is_awake.wait()
        return await open_writable(timeout, options)

    monkeypatch.setattr(connector, "_open_writable", freeze_the_old_host)
    late = asyncio.create_task(connector.connect())
    await is_asked.wait()
    connector.leave(old)
    new = await connector.connect()
    is_awake.set()
    session = await asyncio.wait_for(late, PATIENCE_SECONDS)

    assert session.host == new.host != old.host
    assert connector.is_current(new)
    await close(session, new)
