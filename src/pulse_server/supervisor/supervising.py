"""Starts the processes, replaces one that dies, passes signals on, and ends with all of them. ADR-0024"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from pulse.supervision.processes import Restarts, exit_words
from pulse_server import tuning
from pulse_server.doors import doors, warn_of_open_doors
from pulse_server.settings import Settings
from pulse_server.supervisor.process import ServerProcess, SignalQueue, queued_signals
from pulse_server.transport.addresses import reserve

# Time for closing connections after the drain timeout, the goodbye and the last statement.
DRAIN_SPARE = timedelta(seconds=5)
# A process that dies is replaced almost at once: its callers have to go somewhere.
RESTART_FIRST_SECONDS = 0.1
# One that dies again and again must not keep a core busy with its starts.
RESTART_LONGEST_SECONDS = 10.0
# A process that has served this long has started well: the delays start over.
RESTART_FORGIVEN_SECONDS = 60.0

log = logging.getLogger(__name__)

_STOP = frozenset({signal.SIGTERM, signal.SIGINT})
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


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
    with (
        reserve(settings.grpc_address) as reserved,
        private_sockets(settings) as sockets,
        queued_signals(_SIGNALS) as signals,
        _http_port(settings, sockets),
    ):
        inherited = [
            environment_of(environ, reserved.address, dsn, sockets[number] if sockets else None)
            for number in range(settings.processes)
        ]
        return _Supervisor(settings, reserved.address, inherited, signals).run()


def _http_port(settings: Settings, sockets: Sequence[Path]) -> AbstractContextManager[None]:
    if settings.http_address is None:
        return nullcontext()
    from pulse_server.supervisor.http_port import gathered_http  # imports asyncio, bcrypt and the metrics

    return gathered_http(settings, settings.http_address, sockets)


@dataclass(slots=True)
class _Child:
    """One of the processes, and its successor when it dies."""

    number: int
    environment: Mapping[str, str]
    process: ServerProcess | None = None
    start_at: float = 0.0
    serving_since: float | None = None
    has_ended: bool = False
    restarts: Restarts = field(
        default_factory=lambda: Restarts(
            RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS, RESTART_FORGIVEN_SECONDS
        )
    )

    def read_messages(self, now: float) -> bool:
        """Read the messages of the process. True if it has just begun to serve."""
        assert self.process is not None
        if self.process.is_connected:
            self.process.read_messages()
        has_begun = self.process.is_serving and self.serving_since is None
        if has_begun:
            self.serving_since = now
        return has_begun

    def clear(self, now: float) -> float:
        """Drop the process, which has ended. Returns the seconds until the next start."""
        wait = self.restarts.wait_seconds(0.0 if self.serving_since is None else now - self.serving_since)
        self.process, self.serving_since = None, None
        self.has_ended = True
        self.start_at = now + wait
        return wait


class _Supervisor:
    def __init__(
        self, settings: Settings, address: str, inherited: Sequence[Mapping[str, str]], signals: SignalQueue
    ) -> None:
        self._settings = settings
        self._address = address
        self._children = [_Child(number, env) for number, env in enumerate(inherited, start=1)]
        self._signals = signals
        self._has_started = False

    def run(self) -> int:
        try:
            while True:
                for child in self._children:
                    self._update(child)
                self._log_once_all_serve()
                for number in self._wait(self._next_start()):
                    if number in _STOP:
                        return self._drain()
                    if number == signal.SIGHUP:
                        self._pass_on_reload()
        finally:
            for process in self._processes():
                process.end()

    def _update(self, child: _Child) -> None:
        """Update the state of the process, and start one where there is none."""
        now = time.monotonic()
        if child.process is None:
            if now >= child.start_at:
                child.process = ServerProcess(child.environment, child.number)
            return
        code = child.process.exit_code
        if child.read_messages(now) and child.has_ended:
            log.info("process_restarted", extra={"child": child.number, "child_pid": child.process.pid})
        if code is not None:
            self._replace(child, child.process, now)

    def _replace(self, child: _Child, process: ServerProcess, now: float) -> None:
        how = exit_words(process.end())
        if not self._has_started:
            child.process = None
            raise ProcessFailed(
                "\n".join(process.failed)
                or f"Server process {child.number} ended before it served ({how}); what it wrote is above."
            )
        wait = child.clear(now)
        log.error(
            "process_ended",
            extra={
                "child": child.number,
                "child_pid": process.pid,
                "how": how,
                "reason": " ".join(process.failed) or None,
                "restart_in_seconds": round(wait, 3),
            },
        )

    def _log_once_all_serve(self) -> None:
        if self._has_started or not all(child.serving_since is not None for child in self._children):
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
        for process in self._processes():
            if process.is_serving:
                process.send(signal.SIGHUP)

    def _drain(self) -> int:
        """Ask all to stop and wait for them, up to the bound. Returns the exit code."""
        log.info("draining")
        deadline = time.monotonic() + longest_drain(self._settings).total_seconds()
        leaving = self._processes()
        # One that does not serve yet may be ended by the signal itself: there was nothing to drain.
        serving = [process for process in leaving if process.is_serving]
        for process in leaving:
            process.send(signal.SIGTERM)
        while any(process.exit_code is None for process in leaving):
            for number in self._wait(deadline):
                if number in _STOP:
                    log.warning("stopped_at_once", extra={"signal": number.name})
                    return 1
            if time.monotonic() >= deadline:
                log.error(
                    "drain_took_too_long", extra={"bound_seconds": longest_drain(self._settings).seconds}
                )
                return 1
        codes = [process.end() for process in serving]
        log.info("stopped")
        return 0 if not any(codes) else 1

    def _wait(self, until: float | None) -> list[signal.Signals]:
        """Wait for a signal, a message from a process, or the deadline. Returns the signals."""
        seconds = None if until is None else max(0.0, until - time.monotonic())
        # Not select(): it fails past descriptor 1023, and connections to the HTTP port raise the numbers.
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            for process in self._processes():
                if process.is_connected:
                    selector.register(process, selectors.EVENT_READ, process.read_messages)
            for key, _ in selector.select(seconds):
                if key.data is not None:
                    key.data()
        return self._signals.take()

    def _next_start(self) -> float | None:
        return min((child.start_at for child in self._children if child.process is None), default=None)

    def _processes(self) -> list[ServerProcess]:
        return [child.process for child in self._children if child.process is not None]


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
