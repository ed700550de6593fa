"""The pulsed of the kits of this process: one, and its database, which is empty for each kit.

It is pulsed's own composition. Nothing listens on a port, and no loop runs by itself. What it has in memory
it reads from the database, which other servers may change: so it goes on with an empty one.

The statements of pulsed name now(), clock_timestamp() and random() without a schema. In the sessions of a kit
the schema `pulse_kit` comes before pg_catalog, and has functions of these names.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import asyncpg
import grpc

from pulse.errors import Unavailable
from pulse.installation import how_to_install
from pulse.testing.pulsed import connect, connected, named
from pulse_server.base.errors import PulseError as ServerError
from pulse_server.database.connections import Database
from pulse_server.database.schema import apply_migrations
from pulse_server.database.urls import BadConnectionString, DatabaseUrl, read_database_url
from pulse_server.dispatch.workers import Session
from pulse_server.settings import Settings
from pulse_server.wakeups.line import NoWakeupLine

if TYPE_CHECKING:
    from pulse_server.app import App

Answer = TypeVar("Answer")

WORKER = "pulse-kit"
# No lease ends in a test, however far the clock is moved.
LEASE = timedelta(days=36500)
SETTINGS = Settings(grpc_address="", database_url=None, lease_ttl=LEASE)
GIVEN = "TEST_DB_URL"
ALREADY_OPEN = (
    "A kit is open in this process already: the fixture pulse_kit, or another Kit(). A process has one "
    "queue, which all its clients use, so use that kit."
)
_SEARCH_PATH = "pulse_kit, pg_catalog"
# Nothing of a test must survive a crash of the machine.
_FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "50",
    "shared_buffers": "32MB",
}
# Deleted rows stay in their tables until a vacuum. After this many the kit does it, in about 50 ms.
_MOST_DELETED = 5000
# A directory that a killed process has left is removed, unless it may be one that is just being made.
_LEFT_AFTER = timedelta(minutes=10)
_PREFIX = "pulse-kit-"
# The first key of the locks by which processes that share a server know each other's databases.
_LOCK = 0x70756C73
# Locks are of a database, and another process may have connected to another one: these are of all.
_LEFT = r"""
    SELECT datname FROM pg_database
    WHERE datname ~ '^pulse_kit_\d+$' AND NOT EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND classid = $1::int8::oid AND objid = substring(datname, 11)::int8::oid)
"""
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Calls:
    """Stands where pulsed has its gRPC server, and has the handlers that it would call."""

    def __init__(self) -> None:
        self._handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        self._handlers += handlers

    def handler(self, path: str) -> Any:
        """Return the handler of an RPC."""
        return self._handlers[0].service(_Path(path))


@dataclass
class _Path:
    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


class Store:
    """A pulsed and its database. Their code runs in an event loop in a thread."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = _new_event_loop()
        self._ending = contextlib.ExitStack()
        self._deleted = 0
        self._worker: Session | None = None
        self.topics: frozenset[str] = frozenset()
        """Those that the kit serves."""
        self.has_settings = False
        """Whether settings of topics or pauses may have been set since the store began."""
        threading.Thread(target=self._loop.run_forever, name="pulse-kit-server", daemon=True).start()
        # The modules of the server take as long to import as half of a Postgres takes to start.
        importing = threading.Thread(target=_import, args=("pulse_server.app",))
        importing.start()
        try:
            url = self._make()
            importing.join()
            self.database = Database(url, search_path=_SEARCH_PATH)
            self.calls = Calls()
            self.app = self.run(self._compose())
        except BaseException:
            self.end()
            raise
        atexit.register(self.end)

    async def _compose(self) -> App:
        from pulse_server.app import App

        return App(
            SETTINGS,
            "",
            database=self.database,
            line=NoWakeupLine(),
            make_server=cast(Any, lambda **_: self.calls),
        )

    # ------------------------------------------------------------ code of the server

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it in the event loop of the server, and block until it is done."""
        return self.start(coroutine).result()

    def start(self, coroutine: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Run it in the event loop of the server. The future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def fetch(self, statement: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a statement of the kit itself."""
        return await self.database.hot.fetch("testing_kit", statement, *args)

    # ------------------------------------------------------------ time and rows

    async def begin(self, now: datetime) -> None:
        """Empty the database and set its time."""
        ((deleted,),) = await self.fetch("SELECT pulse_kit.begin($1)", _microseconds(now))
        if self.has_settings:
            self.has_settings = False
            await self.app.dispatch.gate.refresh()
            await self.app.topics.settings.prime()
        self._deleted += deleted
        if self._deleted > _MOST_DELETED:
            self._deleted = 0
            ((tables,),) = await self.fetch("SELECT pulse_kit.tables()")
            await self.fetch(f"VACUUM {tables}")

    async def serve(self, topics: frozenset[str]) -> None:
        """Connect the kit as the worker of these topics. It has no free slot: the test runs the jobs."""
        if self._worker is not None:
            self.app.dispatch.hub.disconnect(self._worker)
        self.topics = topics
        backlog = self.app.dispatch.roster.backlog
        self._worker = Session(WORKER, topics, 0, speaks_batches=False, run_id="", backlog=backlog)
        self.app.dispatch.hub.connect(self._worker, [])

    async def is_begun(self, now: datetime) -> bool:
        """Do the same. False: the Postgres was ended since the last kit."""
        try:
            await self.begin(now)
        except ServerError:
            return False
        return True

    async def now(self) -> datetime:
        """Return the time, without a reading."""
        ((now,),) = await self.fetch("SELECT pulse_kit.now()")
        return now  # type: ignore[no-any-return]

    async def move_to(self, moment: datetime) -> datetime:
        """Move the time forward to this moment, unless it is past. Returns the time."""
        ((now,),) = await self.fetch("SELECT pulse_kit.move($1)", _microseconds(moment))
        return now  # type: ignore[no-any-return]

    # ------------------------------------------------------------ the cluster

    def _make(self) -> str:
        """Make the database. Returns its URL."""
        given = os.environ.get(GIVEN)
        url = self._own_cluster() if given is None else self._in_cluster(given)
        self.run(_install(url))
        return url

    def _own_cluster(self) -> str:
        from pulse_server.embedded import EmbeddedPostgres, EmbeddedUnavailable  # not on Windows

        _remove_left_directories()
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._ending.callback(shutil.rmtree, directory, ignore_errors=True)
        postgres = EmbeddedPostgres(directory, settings=_FAST)
        try:
            postgres.start()
        except EmbeddedUnavailable:
            raise Unavailable(
                f"The testing kit needs a Postgres, and found none. {how_to_install('embedded')} Or set "
                f"{GIVEN} to the URL of a Postgres server for tests, with a user that may create databases."
            ) from None
        self._ending.callback(postgres.stop)
        return postgres.dsn

    def _in_cluster(self, given: str) -> str:
        """Create a database on the server of TEST_DB_URL. A lock of this process keeps it."""
        number = random.SystemRandom().randrange(2**31)
        name = f"pulse_kit_{number}"
        try:
            cluster, own = read_database_url(given), named(given, name)
            keeper = self.run(_created(cluster, number, name))
        except (BadConnectionString, OSError, asyncpg.PostgresError) as error:
            raise Unavailable(f"The testing kit cannot use the Postgres of {GIVEN}: {error}") from error
        self._ending.callback(self._drop, keeper, name)
        return own

    def _drop(self, keeper: Any, name: str) -> None:
        async def drop() -> None:
            await keeper.execute(f"DROP DATABASE {name} WITH (FORCE)")
            await keeper.close()

        self.run(drop())

    def end(self) -> None:
        """Stop the Postgres, or drop the database. Not in a forked child: both are its parent's."""
        if self.process != os.getpid():
            return
        atexit.unregister(self.end)
        with contextlib.suppress(Exception):  # the server may be away by now
            self._ending.close()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _import(name: str) -> None:
    with contextlib.suppress(Exception):  # its first user raises it again
        import_module(name)


async def _install(url: str) -> None:
    await apply_migrations(url)
    async with connected(read_database_url(url)) as session:
        await session.execute(resources.files("pulse.testing").joinpath("store.sql").read_text("utf-8"))


async def _created(cluster: DatabaseUrl, number: int, name: str) -> Any:
    """Create a database, and drop those that no session keeps. Returns the session that keeps this one."""
    session = await connect(cluster)
    try:
        await session.fetchval("SELECT pg_advisory_lock($1, $2)", _LOCK, number)
        for (other,) in await session.fetch(_LEFT, _LOCK):
            key = int(other.removeprefix("pulse_kit_"))
            # Not while another process is dropping it.
            if await session.fetchval("SELECT pg_try_advisory_lock($1, $2)", _LOCK, key):
                await session.execute(f"DROP DATABASE IF EXISTS {other} WITH (FORCE)")
                await session.fetchval("SELECT pg_advisory_unlock($1, $2)", _LOCK, key)
        await session.execute(f"CREATE DATABASE {name}")
    except BaseException:
        await session.close()
        raise
    return session


def _remove_left_directories() -> None:
    """Remove what killed processes have left: a living one has locked its directory."""
    import fcntl  # not on Windows

    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - directory.stat().st_mtime < _LEFT_AFTER.total_seconds():
                continue
            with (directory / "lock").open("ab") as lock:  # it may be gone, if a removal was interrupted
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


# ---------------------------------------------------------------- one kit at a time

_lending = threading.Lock()
_store: Store | None = None
_is_lent = False


def lend(now: datetime) -> Store:
    """Return the store of this process, empty and with this time. It starts with the first kit.

    Raises AssertionError while it is lent.
    """
    global _store, _is_lent
    with _lending:
        if _store is not None and _store.process != os.getpid():
            _store, _is_lent = None, False  # a forked child
        if _is_lent:
            raise AssertionError(ALREADY_OPEN)
        if _store is not None and not _store.run(_store.is_begun(now)):
            _store.end()
            _store = None
        if _store is None:
            _store = Store()
            _store.run(_store.begin(now))
        _is_lent = True
        return _store


def give_back() -> None:
    """Let the next kit have the store."""
    global _is_lent
    _is_lent = False
