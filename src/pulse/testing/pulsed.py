"""Starts a real pulsed with a database of its own for tests, which is empty for each test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

import grpc.aio

from pulse.blocking.client import SyncPulse
from pulse.client import Pulse, existing_clients
from pulse.errors import ClientClosed, InvalidArgument, PulseError
from pulse.jobs.caller import Session
from pulse.jobs.models import JobStatus
from pulse.wire.endpoint import Endpoint, make_endpoint
from pulse.wire.redirection import redirected
from pulse.wire.servers import open_channel
from pulse_server.database.connector import tls_arguments
from pulse_server.database.urls import (
    BadConnectionString,
    DatabaseUrl,
    is_url,
    read_database_url,
    split_url,
    with_parameters,
)
from pulse_server.embedded.cluster import url_of

# Rows of the migrations, and of the server that runs.
_KEPT = ["schema_migrations", "dispatch_control", "servers", "spared_workers"]
_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'pulse'::regnamespace AND relkind = 'r' AND NOT relname = ANY($1)
    ORDER BY relname
"""


@contextlib.contextmanager
def own_database(given: str) -> Iterator[str]:
    """Create a database in the cluster of DB_HOST, and drop it at the end. Yields its own DB_HOST.

    Raises InvalidArgument for a DB_HOST that pulsed could not read.
    """
    try:
        cluster = read_database_url(given)
        name = f"pulse_test_{uuid.uuid4().hex}"
        own = named(given, name)
    except BadConnectionString as error:
        raise InvalidArgument(
            f"DB_HOST {error} If your application has a DB_HOST for itself, remove it from os.environ in "
            "conftest.py, or put the URL of a Postgres for tests there."
        ) from None
    _run(cluster, lambda connection: connection.execute(f'CREATE DATABASE "{name}"'))
    try:
        yield own
    finally:
        _run(cluster, lambda connection: connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'))


def delete_rows(url: str, tables: Collection[str] = ()) -> None:
    """Delete what tests have stored in these tables, or in all. The server goes on."""

    async def delete(connection: Any) -> None:
        names = tables or [row["relname"] for row in await connection.fetch(_TABLES, _KEPT)]
        for name in names:  # each in a transaction of its own: a server locks rows in another order
            await connection.execute(f"DELETE FROM pulse.{name}")

    _run(read_database_url(url), delete)


async def connect(target: DatabaseUrl) -> Any:
    """Open a session."""
    import asyncpg

    return await asyncpg.connect(target.url, **tls_arguments(target))


@contextlib.asynccontextmanager
async def connected(target: DatabaseUrl) -> AsyncIterator[Any]:
    """Open a session for the length of a block."""
    connection = await connect(target)
    try:
        yield connection
    finally:
        await connection.close()


def _run(target: DatabaseUrl, action: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
    async def run() -> None:
        async with connected(target) as connection:
            await action(connection)

    _in_thread(lambda: asyncio.run(run()))


def _in_thread(call: Callable[[], None]) -> None:
    """Run it in another thread: the fixture of an async test may be set up inside its event loop."""
    errors: list[BaseException] = []

    def caught() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def named(given: str, database: str) -> str:
    """Return the URL with another database."""
    given = given.strip()
    if not is_url(given):
        return f"{given} dbname={database}"
    base, parameters = split_url(given)
    scheme, _, rest = base.partition("://")
    others = {name: value for name, value in parameters.items() if name not in ("dbname", "database")}
    return with_parameters(f"{scheme}://{rest.partition('/')[0]}/{database}", others)


_COMMAND = (sys.executable, "-m", "pulse_server", "--migrate")
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_UNFINISHED = [status for status in JobStatus if not status.is_finished]
# Who has set which settings of topics, and what is in force for runs and retention.
_OWNERS = ("topic_settings", "topic_rules")


class Pulsed:
    """A running pulsed: with a database in the Postgres at DB_HOST, or else with the embedded Postgres."""

    def __init__(self) -> None:
        self.address = ""
        """Its host and port."""
        self.database_url = ""
        """Its database, for `pulse.sql` in the application."""
        self._stack = contextlib.ExitStack()
        self._workers: list[RunningWorker] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            settings = _without_pulse(os.environ) | {"PULSE_GRPC_ADDR": "127.0.0.1:0"}  # port 0: any free one
            if url := os.environ.get("DB_HOST"):
                self.database_url = settings["DB_HOST"] = stack.enter_context(own_database(url))
            else:
                # Short: the path of a Unix socket has a limit.
                settings["PULSE_DATA_DIR"] = directory = tempfile.mkdtemp(prefix="pulsed-")
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
            self.address = stack.enter_context(_serving(settings))
            self.database_url = self.database_url or url_of(Path(settings["PULSE_DATA_DIR"]))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def work(self, client: Any, **options: Any) -> RunningWorker:
        """Run the handlers of this client until the test ends, or the end of a `with` block.

        Takes the options of `run`. Handlers run beside the test, in another thread.
        """
        worker = RunningWorker(client, options)
        self._workers.append(worker)
        return worker

    @contextlib.contextmanager
    def lent(self) -> Iterator[Self]:
        """Send all clients of the process here while the block runs. At its end everything is deleted."""
        variables = {name: value for name, value in os.environ.items() if name.startswith("PULSE_")}
        for name in variables:
            del os.environ[name]
        os.environ["PULSE_ADDR"] = self.address  # for processes that a test starts
        try:
            with redirected(ToPulsed(self.address, self._workers)):
                try:
                    yield self
                finally:
                    with contextlib.ExitStack() as ending:
                        ending.callback(self._clear)  # also after a worker that ended with an error
                        for worker in self._workers:
                            ending.callback(worker.stop)
                        self._workers.clear()
        finally:
            os.environ.pop("PULSE_ADDR", None)
            os.environ.update(variables)

    def _clear(self) -> None:
        with SyncPulse(self.address) as client:
            for status in _UNFINISHED:
                for _ in client.cancel_matching(reason="The test has ended.", status=status):
                    pass
            # The server has settings in memory, and stores limits again that it has read before. So it reads
            # the owners again, for a topic without settings, before the rest is deleted.
            delete_rows(self.database_url, _OWNERS)
            client.reset_topic("none")
            delete_rows(self.database_url)
            client.resume()  # it reads pauses and limits again
            delete_rows(self.database_url, ["audit"])


class ToPulsed:
    """All clients use this pulsed, whatever their addresses and credentials are."""

    runs_workers = True
    loop = None

    def __init__(self, address: str, workers: Sequence[RunningWorker] = ()) -> None:
        self._endpoint = make_endpoint(address, None, None, tls=False)
        self._workers = workers

    def check(self) -> None:
        for worker in self._workers:
            worker.check()

    def check_database(self) -> None: ...

    def connect(self, endpoint: Endpoint) -> tuple[Endpoint, Callable[[Endpoint], grpc.aio.Channel]]:
        return self._endpoint, open_channel


class RunningWorker:
    """A worker in a thread. `with` stops it at the end of the block."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._client: Pulse | SyncPulse = client
        self._options = options
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="pulse-worker", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Drain, and wait for the end. Raises the error that the worker ended with."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_STOP_SECONDS)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def check(self) -> None:
        """Raise ClientClosed if the worker has ended with an error."""
        if self._error is not None:
            raise self._problem() from self._error

    def _problem(self) -> ClientClosed:
        return ClientClosed(f"A worker of this test has ended, so that jobs wait. Its error: {self._error!r}")

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._work())
        except BaseException as error:
            self._error = error
            self._end_waits()

    def _end_waits(self) -> None:
        """End the open waits of all clients: no worker runs the jobs."""
        for client in existing_clients():
            sessions: dict[asyncio.AbstractEventLoop, Session] = getattr(
                client, "_async", client
            )._caller._redirected
            for loop, session in list(sessions.items()):
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(session.awaiting.end_all, self._problem)

    async def _work(self) -> None:
        self._task = asyncio.current_task()
        client = self._client
        options: Any = {**self._options, "handle_signals": False}
        with contextlib.suppress(asyncio.CancelledError):
            await (client._run(options) if isinstance(client, SyncPulse) else client.run(**options))
        if isinstance(client, Pulse):
            await client._caller.close_session()


@contextlib.contextmanager
def _serving(settings: dict[str, str]) -> Iterator[str]:
    server = subprocess.Popen(_COMMAND, env=settings, stderr=subprocess.PIPE, text=True)
    try:
        log = _Log(server)
        has_ended = log.is_decided.wait(_START_SECONDS)
        if not log.address:
            late = "" if has_ended else f" in {_START_SECONDS:.0f} s"
            raise PulseError(f"pulsed did not start{late}. Its log:\n{''.join(log.lines)}")
        yield log.address
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class _Log:
    """The log of a pulsed, read in a thread: a full pipe would stop it."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        assert server.stderr is not None
        self.lines: list[str] = []
        """Up to the start."""
        self.address = ""
        """Where it serves. Empty: it does not yet, or has ended."""
        self.is_decided = threading.Event()
        threading.Thread(target=self._read, args=(server.stderr,), daemon=True).start()

    def _read(self, log: IO[str]) -> None:
        for line in log:  # one JSON object a line
            if self.address:
                continue
            self.lines.append(line)
            if line.startswith("{") and (event := json.loads(line)).get("event") == "serving":
                self.address = event["address"]
                self.is_decided.set()
        self.is_decided.set()


def _without_pulse(environ: os._Environ[str]) -> dict[str, str]:
    """Return the environment without the settings of other servers and clients."""
    return {name: value for name, value in environ.items() if not name.startswith("PULSE_")}
