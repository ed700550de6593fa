"""Starts a real pulsed with a new database for tests."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

import grpc.aio

from pulse.blocking.client import SyncPulse
from pulse.client.caller import Session
from pulse.client.client import Pulse, existing_clients
from pulse.errors import ClientClosed, PulseError
from pulse.models.jobs import JobStatus
from pulse.testing.databases import delete_rows, own_database
from pulse.wire.channels import open_channel
from pulse.wire.endpoint import Endpoint, make_endpoint
from pulse.wire.redirection import redirected
from pulse_server.embedded.cluster import url_of

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
        self._workers: list[Worker] = []

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

    def work(self, client: Any, **options: Any) -> Worker:
        """Run the handlers of this client until the test ends, or the end of a `with` block.

        Takes the options of `run`. Handlers run beside the test, in another thread.
        """
        worker = Worker(client, options)
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

    def __init__(self, address: str, workers: Sequence[Worker] = ()) -> None:
        self._endpoint = make_endpoint(address, None, None, tls=False)
        self._workers = workers

    def check(self) -> None:
        for worker in self._workers:
            worker.check()

    def check_database(self) -> None: ...

    def connect(self, endpoint: Endpoint) -> tuple[Endpoint, Callable[[Endpoint], grpc.aio.Channel]]:
        return self._endpoint, open_channel


class Worker:
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
