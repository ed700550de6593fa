"""The processes of the demo: a pulsed with its Postgres, a dashboard, workers. All of them end with it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from examples.demo.facts import NotAsPromised, until

_ROOT = Path(__file__).resolve().parents[2]
_CALLER_STOP_SECONDS = 5
_SERVER_STOP_SECONDS = 25
# A tenth of the usual times, so that a recovery does not take half a minute.
LEASE_SECONDS = 3
_SERVER_SETTINGS = {
    "PULSE_GRPC_ADDR": "127.0.0.1:0",  # any free port
    "PULSE_LEASE_TTL": f"{LEASE_SECONDS}s",
    "PULSE_HEARTBEAT_INTERVAL": "1s",
    "PULSE_WATCHDOG_INTERVAL": "1s",
    "PULSE_DRAIN_TIMEOUT": "2s",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress that a worker reported for a job."""

    worker: str
    job_id: str
    attempt: int
    percent: int


class Stage:
    """Starts the processes and ends them. They hold pipes that end them too if this process is killed."""

    def __init__(self, keep: Path | None, hear: Callable[[Progress], None]) -> None:
        self._keep = keep
        self._hear = hear
        self.progress: dict[str, Progress] = {}
        self._directory: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._dashboard: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._listeners: set[asyncio.Task[None]] = set()

    @property
    def is_set(self) -> bool:
        """Whether there is something to clear."""
        return self._keeper is not None

    # ------------------------------------------------------------ the server

    def start_server(self) -> None:
        """Start a pulsed that makes its own Postgres. Raises NotAsPromised if its directory cannot be."""
        try:
            if self._keep is None:
                self._directory = Path(tempfile.mkdtemp(prefix="pulse-demo-"))
            else:
                self._directory = self._keep.resolve()
                self._directory.mkdir(parents=True, exist_ok=True)
                (self._directory / "pulsed.log").write_bytes(b"")
        except OSError as error:
            raise NotAsPromised(f"The demo needs a directory for its database: {error}.") from error
        inside = {"PULSE_DATA_DIR": str(self._directory / "data"), "TMPDIR": str(self._directory)}
        fate = "remove" if self._keep is None else "keep"
        arguments = [str(self._directory), fate]
        self._keeper = self._start("keeper", arguments, {**_SERVER_SETTINGS, **inside})

    async def address(self) -> str:
        """Return the address of the server, once it accepts calls. Raises NotAsPromised if it never will."""
        return await until(self._look_for_address, "the server accepts calls")

    async def _look_for_address(self) -> str | None:
        assert self._directory is not None
        assert self._keeper is not None
        assert self._keeper.stdout is not None
        if self._keeper.poll() is not None:
            words = self._keeper.stdout.read().decode(errors="replace").strip()
            raise NotAsPromised(f"The server did not start. {words}")
        with contextlib.suppress(FileNotFoundError):
            for line in (self._directory / "pulsed.log").read_text().splitlines():
                if '"serving"' in line:
                    return str(json.loads(line)["address"])
        return None

    # ------------------------------------------------------------ the dashboard

    def start_dashboard(self, address: str) -> None:
        """Start a dashboard for the server at this address."""
        self._dashboard = self._start("dashboard", [address], {})

    async def dashboard_address(self) -> str:
        """Return the URL of the dashboard. Raises NotAsPromised if it never answers."""
        return await until(self._look_for_dashboard, "the dashboard answers")

    async def _look_for_dashboard(self) -> str | None:
        assert self._directory is not None
        assert self._dashboard is not None
        words = (self._directory / "dashboard.log").read_text(errors="replace")
        if found := re.search(r"The dashboard is at (\S+),", words):
            return found[1]
        if self._dashboard.poll() is not None:
            raise NotAsPromised(f"The dashboard did not start. {words.strip()}")
        return None

    # ------------------------------------------------------------ workers

    def start_worker(self, name: str, address: str) -> None:
        """Start a worker process, and read its reports."""
        worker = self._workers[name] = self._start("worker", [name, address], {})
        listener = asyncio.create_task(self._listen(name, worker))
        self._listeners.add(listener)
        listener.add_done_callback(self._listeners.discard)

    def kill_worker(self, name: str) -> None:
        """Kill a worker with SIGKILL: it gets no chance to do or report anything."""
        worker = self._workers.pop(name)
        worker.kill()
        worker.wait()

    async def _listen(self, name: str, worker: "subprocess.Popen[bytes]") -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), worker.stdout)
        async for line in reader:
            with contextlib.suppress(ValueError):  # half a line, from a worker that was killed
                progress = Progress(worker=name, **json.loads(line))
                self.progress[progress.job_id] = progress
                self._hear(progress)

    def _start(
        self, module: str, arguments: list[str], settings: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        # The user's own PULSE_ADDR or DB_HOST leads to a real system, which is none of the demo's business.
        foreign = ("PULSE_", "DB_HOST", "XDG_RUNTIME_DIR")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        assert self._directory is not None
        with (self._directory / f"{module}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.{module}", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
                env={**environment, **settings},
                start_new_session=True,  # Ctrl-C in the terminal is for the demo alone, which ends the others
            )

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """Stop workers and dashboard, then the server with its Postgres; remove the temporary directory."""
        callers = [*self._workers.values(), *([self._dashboard] if self._dashboard is not None else [])]
        for caller in callers:
            caller.send_signal(signal.SIGTERM)
        for caller in callers:
            if not await _ends_within(caller, _CALLER_STOP_SECONDS):
                caller.kill()
                caller.wait()
        if self._keeper is not None:
            _let_go(self._keeper)
            await _ends_within(self._keeper, _SERVER_STOP_SECONDS)
        for listener in self._listeners:
            listener.cancel()

    def abandon(self) -> None:
        """Abandon every process without waiting: each ends by itself, and the directory is removed."""
        for process in (*self._workers.values(), self._dashboard, self._keeper):
            if process is not None:
                _let_go(process)


def _let_go(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


async def _ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while process.poll() is None:  # noqa: ASYNC110 - a process that ends sets no event
                await asyncio.sleep(0.02)
            return True
    return False
