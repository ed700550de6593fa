"""Several server processes behind one port, started, watched and replaced by a supervisor.

It passes signals on, and ends with all of them. One socket ties a process to its supervisor, by which each
notices the other's end. The process reports that it serves, or why it cannot. The supervisor sends nothing.
docs/figures.md#several-processes
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import timedelta
from functools import partial
from pathlib import Path

from pulse.supervision.processes import (
    Command,
    ProcessEnd,
    Restarts,
    SupervisedProcess,
    exit_words,
    first_of,
    handled_in_loop,
)
from pulse_server.base import tuning
from pulse_server.base.metrics import Metrics
from pulse_server.doors.addresses import access_of, doors, reserve, warn_of_open_doors
from pulse_server.doors.http import METRICS_PATH, GatheredPages, HttpServer, behind_login
from pulse_server.settings import Settings

log = logging.getLogger(__name__)


class ServerProcess(SupervisedProcess):
    """The supervisor's end. `failed` has the reasons why the process does not serve."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter, command: Command
    ) -> None:
        super().__init__(number, process, writer, command)
        self.serving = asyncio.Event()
        self.failed: list[str] = []
        self._serving_since: float | None = None

    @property
    def served_seconds(self) -> float:
        """The time since it began to serve; 0 if it does not."""
        return 0.0 if self._serving_since is None else time.monotonic() - self._serving_since

    def _received(self, word: str, rest: str) -> None:
        if word == "serving":
            self._serving_since = time.monotonic()
            self.serving.set()
        else:
            self.failed.append(rest)


class Lifeline(ProcessEnd):
    """The process's end."""

    _leave: Callable[[], object] = staticmethod(lambda: os._exit(1))
    _patience = timedelta(0)

    def when_abandoned(self, leave: Callable[[], object], within: timedelta) -> None:
        """Call this, from a thread, when the supervisor is gone; end the process if it takes longer."""
        self._leave, self._patience = leave, within

    def report_failed(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self.send(f"failed {sentence}")

    def _abandoned(self) -> None:
        log.warning("supervisor_gone")
        with suppress(RuntimeError):  # the event loop is closed: it is leaving already
            self._leave()
        time.sleep(self._patience.total_seconds())
        log.warning("stopped_at_once", extra={"signal": "none"})
        os._exit(1)


# ---------------------------------------------------------------- http port
# The HTTP port of a supervisor, which answers for all of its processes.


@asynccontextmanager
async def gathered_http(
    settings: Settings, address: str, child_sockets: Sequence[Path]
) -> AsyncIterator[None]:
    """Answer on the address while the block lasts.

    Each process is asked on its socket; the first is process 1. Raises PortInUse or BadSettings.
    """
    pages = GatheredPages({str(number): path for number, path in enumerate(child_sockets, start=1)}).pages
    # Logins at this port are not counted: the supervisor exports no metrics about itself.
    access = access_of(settings, Metrics()) if settings.metrics_need_login else None
    if access is not None:
        pages[METRICS_PATH] = behind_login(pages[METRICS_PATH], access.authenticator)
    tls = None
    if settings.tls is not None:
        from pulse_server.doors.tls import Certificates  # brings gRPC along

        tls = Certificates(settings.tls).server_ssl_context()
    loops = [] if access is None else [asyncio.create_task(loop.run()) for loop in access.loops]
    server = HttpServer(pages)
    try:
        log.info("http_serving", extra={"http_address": await server.start(address, tls)})
        yield
    finally:
        await server.stop()
        for loop in loops:
            loop.cancel()
        if access is not None:
            access.close()


# ---------------------------------------------------------------- supervising

# Time for closing connections after the drain timeout, the goodbye and the last statement.
DRAIN_SPARE = timedelta(seconds=5)
# A process that dies is replaced almost at once: its callers have to go somewhere.
RESTART_FIRST_SECONDS = 0.1
# One that dies again and again must not keep a core busy with its starts.
RESTART_LONGEST_SECONDS = 10.0
# A process that has served this long has started well: the delays start over.
RESTART_FORGIVEN_SECONDS = 60.0


class ProcessFailed(Exception):
    """A process could not start. The text is its own report, or how it ended."""


def longest_drain(settings: Settings) -> timedelta:
    """How long a process may take from SIGTERM to its end; one that takes longer hangs."""
    return settings.drain_timeout + tuning.STREAM_GOODBYE + tuning.STATEMENT_TIMEOUT + DRAIN_SPARE


def supervise(settings: Settings, environ: Mapping[str, str], dsn: str) -> int:
    """Run `settings.processes` servers on one port until SIGTERM or SIGINT, then drain them.

    Returns 0 if each ended in order. A second signal kills them. `environ` are the variables with the flags
    applied; the schema has to be right already. Raises PortInUse, or ProcessFailed while nothing serves yet.
    """
    return asyncio.run(_supervise(settings, environ, dsn))


async def _supervise(settings: Settings, environ: Mapping[str, str], dsn: str) -> int:
    with reserve(settings.grpc_address) as reserved, private_sockets(settings) as sockets:
        inherited = [
            environment_of(environ, reserved.address, dsn, sockets[number] if sockets else None)
            for number in range(settings.processes)
        ]
        supervisor = _Supervisor(settings, reserved.address, inherited)
        with supervisor.signals_handled():
            async with http_port(settings, sockets):
                return await supervisor.run()


def http_port(settings: Settings, sockets: Sequence[Path]) -> AbstractAsyncContextManager[None]:
    """Answer HTTP for all processes while the block lasts, unless HTTP is off."""
    if settings.http_address is None:
        return nullcontext()
    return gathered_http(settings, settings.http_address, sockets)


class _Supervisor:
    def __init__(self, settings: Settings, address: str, inherited: Sequence[Mapping[str, str]]) -> None:
        self._settings = settings
        self._address = address
        program = [sys.executable, "-P", "-m", "pulse_server.main"]
        self._commands = [Command(program, environment, is_detached=True) for environment in inherited]
        self._alive: dict[int, ServerProcess] = {}
        self._has_started = False
        self._stop = asyncio.Event()
        self._is_hurried = asyncio.Event()

    def signals_handled(self) -> AbstractContextManager[object]:
        stops = {number: partial(self._on_stop, number) for number in (signal.SIGTERM, signal.SIGINT)}
        return handled_in_loop({**stops, signal.SIGHUP: self._pass_on_reload})

    async def run(self) -> int:
        keeping = [
            asyncio.create_task(self._keep(number, command))
            for number, command in enumerate(self._commands, start=1)
        ]
        try:
            await first_of(self._stop.wait(), asyncio.wait(keeping, return_when=asyncio.FIRST_COMPLETED))
            for keeper in keeping:
                if keeper.done():
                    keeper.result()  # raises ProcessFailed
                keeper.cancel()
            return await self._drain()
        finally:
            for keeper in keeping:
                keeper.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            for process in self._alive.values():
                process.send_signal(signal.SIGKILL)
            await _ends(self._alive.values())

    async def _keep(self, number: int, command: Command) -> None:
        """Keep one process running under this number."""
        starts = restarts()
        is_first = True
        while True:
            process = self._alive[number] = await ServerProcess.start(command, number)
            await first_of(process.serving.wait(), process.ended.wait())
            if process.serving.is_set() and not is_first:
                log.info("process_restarted", extra={"child": number, "child_pid": process.pid})
            is_first = False
            self._log_once_all_serve()
            await process.ended.wait()
            wait_seconds = starts.wait_seconds(process.served_seconds)
            del self._alive[number]
            self._report_end(process, wait_seconds)
            await asyncio.sleep(wait_seconds)

    def _report_end(self, process: ServerProcess, wait_seconds: float) -> None:
        """Log the end of a process. Raises ProcessFailed while not all have served."""
        how = exit_words(process.exit_code)
        if not self._has_started:
            raise ProcessFailed(
                "\n".join(process.failed)
                or f"Server process {process.number} ended before it served ({how}); what it wrote is above."
            )
        log.error(
            "process_ended",
            extra={
                "child": process.number,
                "child_pid": process.pid,
                "how": how,
                "reason": " ".join(process.failed) or None,
                "restart_in_seconds": round(wait_seconds, 3),
            },
        )

    def _log_once_all_serve(self) -> None:
        serving = [process for process in self._alive.values() if process.serving.is_set()]
        if self._has_started or len(serving) < self._settings.processes:
            return
        self._has_started = True
        log.info(
            "serving",
            extra={
                "address": self._address,
                "pid": os.getpid(),
                "processes": self._settings.processes,
                "lease_ttl_seconds": self._settings.lease_ttl.total_seconds(),
                "embedded": self._settings.database_url is None,
                **doors(self._settings),
            },
        )
        warn_of_open_doors(self._settings)

    def _pass_on_reload(self) -> None:
        # Skip a process that does not serve yet: the signal would kill it, and it reads all files.
        for process in self._alive.values():
            if process.serving.is_set() and not self._stop.is_set():
                process.send_signal(signal.SIGHUP)

    def _on_stop(self, number: signal.Signals) -> None:
        if self._stop.is_set() and not self._is_hurried.is_set():
            log.warning("stopped_at_once", extra={"signal": number.name})
            self._is_hurried.set()
        self._stop.set()

    async def _drain(self) -> int:
        """Ask all to stop and wait for them, up to the bound. Returns the exit code."""
        log.info("draining")
        bound = longest_drain(self._settings)
        leaving = list(self._alive.values())
        # A process that does not serve yet may be ended by the signal itself: it has nothing to drain.
        serving = [process for process in leaving if process.serving.is_set()]
        for process in leaving:
            process.send_signal(signal.SIGTERM)
        await first_of(_ends(leaving), self._is_hurried.wait(), asyncio.sleep(bound.total_seconds()))
        if self._is_hurried.is_set():
            return 1
        if not all(process.ended.is_set() for process in leaving):
            log.error("drain_took_too_long", extra={"bound_seconds": bound.seconds})
            return 1
        log.info("stopped")
        return 1 if any(process.exit_code for process in serving) else 0


async def _ends(processes: Iterable[ServerProcess]) -> None:
    for process in processes:
        await process.ended.wait()


def restarts() -> Restarts:
    """Return the delays of a process that dies."""
    return Restarts(RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS, RESTART_FORGIVEN_SECONDS)


# sun_path holds 104 bytes on the BSDs and macOS, the closing NUL included.
_LONGEST_DIRECTORY = 80


def environment_of(
    environ: Mapping[str, str], address: str, dsn: str, http_socket: Path | None
) -> dict[str, str]:
    """The variables of one process: its address, its database, and its socket for HTTP."""
    changed = {"PULSE_GRPC_ADDR": address, "DB_HOST": dsn, "PULSE_PROCESSES": ""}
    if http_socket is not None:
        # Only the supervisor can open the socket, and it has asked its caller for the password already.
        changed |= {"PULSE_HTTP_ADDR": f"unix:{http_socket}", "PULSE_METRICS_AUTH": ""}
    return {**environ, **changed}


@contextmanager
def private_sockets(settings: Settings) -> Iterator[Sequence[Path]]:
    """One path per process for its HTTP, where only this user gets at it; none if HTTP is off."""
    if settings.http_address is None:
        yield ()
        return
    base = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="pulsed-", dir=base if len(base) <= _LONGEST_DIRECTORY else "/tmp", ignore_cleanup_errors=True
    ) as directory:
        yield [Path(directory) / f"child-{number}.sock" for number in range(1, settings.processes + 1)]
