"""A whole system: pulsed and workers as processes that a test kills, freezes and stops."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import asyncpg

import pulse
from tests.eventually import eventually
from tests.system.journal import Execution, Journal
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

# Recovery within seconds. A worker may miss three beats before it loses its jobs.
QUICK = {
    "PULSE_LEASE_TTL": "2s",
    "PULSE_HEARTBEAT_INTERVAL": "500ms",
    "PULSE_WATCHDOG_INTERVAL": "300ms",
    "PULSE_DISPATCH_INTERVAL": "200ms",
}
# Leases that outlast a restart of pulsed on a busy machine: workers keep their jobs through it.
STEADY = QUICK | {"PULSE_LEASE_TTL": "10s", "PULSE_HEARTBEAT_INTERVAL": "1s"}
# How long a job may take that a worker has lost: its lease ends, after a slow heartbeat another one, and the
# watchdog sees a steady database for a lease more. Each late answer makes the watchdog begin again, and so
# does each moment in which the machine stands still.
RECOVERY_SECONDS = 120.0


class Process:
    """A process whose standard error goes to a file."""

    def __init__(
        self,
        name: str,
        log: Path,
        arguments: Sequence[str],
        environment: dict[str, str],
        *,
        own_session: bool = False,
    ) -> None:
        self.name = name
        self._log = log
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("PULSE_", "DB_", "PG"))
        }
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env=inherited | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=own_session,
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL it, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    async def ended(self) -> int:
        """Return its exit code once it has exited."""
        await eventually(lambda: not self.is_running, f"{self.name} ends\n{self.log[-3000:]}")
        return self._process.wait()


class Worker(Process):
    """A worker process."""

    @property
    def is_connected(self) -> bool:
        return "Connected to pulsed" in self.log


class Pulsed(Process):
    """A pulsed process, on an address that a later one can reuse."""

    address = ""

    @property
    def events(self) -> list[dict[str, Any]]:
        # The last line of one that was killed may be cut.
        return [
            json.loads(line) for line in self.log.splitlines() if line.startswith("{") and line[-1] == "}"
        ]

    @property
    def is_serving(self) -> bool:
        return any(line["event"] == "serving" for line in self.events)

    @property
    def bugs(self) -> list[dict[str, Any]]:
        """Its log entries that indicate a bug: caused by neither a worker nor the database."""
        return [line for line in self.events if line["level"] in ("error", "critical")]


class Stage:
    """The database, the processes on it, and the journal of the handlers."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self.directory = directory
        self.journal = Journal(directory / "journal")
        self.processes: list[Process] = []

    # ------------------------------------------------------------ processes

    async def pulsed(self, address: str | None = None, *arguments: str, **settings: str) -> Pulsed:
        """Start a pulsed and return it once it serves."""
        server = self.start_pulsed(address, *arguments, **settings)
        await self.serving(server)
        return server

    def start_pulsed(
        self,
        address: str | None = None,
        *arguments: str,
        program: str = "pulse_server.main",
        **settings: str,
    ) -> Pulsed:
        """Start a pulsed, and return at once."""
        address = address or f"127.0.0.1:{free_port()}"
        server = Pulsed(
            *self._named("pulsed"),
            ["-m", program, *arguments],
            QUICK | {"DB_HOST": self.dsn, "PULSE_GRPC_ADDR": address} | settings,
        )
        server.address = address
        self.processes.append(server)
        return server

    async def serving(self, server: Pulsed) -> None:
        def serves() -> bool:
            assert server.is_running, f"{server.name} ended: {server.log}"
            return server.is_serving

        await eventually(serves, f"{server.name} serves")

    async def worker(self, address: str, *topics: str, concurrency: int = 10, worker_id: str = "") -> Worker:
        """Start a worker and return it once it is connected."""
        worker = self.start_worker(address, *topics, concurrency=concurrency, worker_id=worker_id)
        await eventually(lambda: worker.is_connected, f"{worker.name} connects")
        return worker

    def start_worker(
        self, address: str, *topics: str, concurrency: int = 10, worker_id: str = "", **variables: str
    ) -> Worker:
        """Start a worker, and return at once. Without a worker_id it is called by its name here."""
        name, log = self._named("worker")
        config = {
            "address": address,
            "journal": str(self.journal.path),
            "topics": topics,
            "concurrency": concurrency,
            "worker_id": worker_id or name,
        }
        worker = Worker(name, log, ["-m", "tests.system.worker_program", json.dumps(config)], variables)
        self.processes.append(worker)
        return worker

    def start_program(self, kind: str, *arguments: str, **variables: str) -> Process:
        """Start another Python program, and return at once."""
        process = Process(*self._named(kind), arguments, variables)
        self.processes.append(process)
        return process

    def _named(self, kind: str) -> tuple[str, Path]:
        name = f"{kind}-{len(self.processes) + 1}"
        return name, self.directory / f"{name}.log"

    def close(self) -> None:
        """Kill what still runs, and print the logs: pytest shows them if the test has failed."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            print(f"--- {process.name} (pid {process.pid})\n{process.log[-6000:]}")
        bugs = {server.name: server.bugs for server in self.servers if server.bugs}
        assert not bugs, f"pulsed logged bugs: {bugs}"

    @property
    def servers(self) -> list[Pulsed]:
        return [process for process in self.processes if isinstance(process, Pulsed)]

    async def prefetches(self, p: pulse.Pulse, worker: Worker) -> None:
        """Return once the worker prefetches, which it does after it has run quick jobs."""
        quick = await p.enqueue_many("work", [Errand("quick")] * 60)
        await eventually(lambda: all(self.by_job(quick).values()), f"{worker.name} has run quick jobs")
        for handle in quick:
            await finished(p, handle.id)

    # ------------------------------------------------------------ gates

    def gate(self, name: str) -> str:
        """Return the path of a closed gate."""
        return str(self.directory / f"gate-{name}")

    def open(self, gate: str) -> None:
        """Open the gate: the handlers that wait for it go on."""
        Path(gate).touch()

    # ------------------------------------------------------------ what happened

    def executions(self, job_id: str | None = None, event: str = "start") -> list[Execution]:
        """The journal of the handlers, in its order."""
        return [
            entry
            for entry in self.journal.entries()
            if entry.event == event and job_id in (None, entry.job_id)
        ]

    def by_job(self, jobs: Iterable[pulse.JobHandle]) -> dict[str, list[Execution]]:
        """The executions of each of these jobs."""
        found: dict[str, list[Execution]] = {job.id: [] for job in jobs}
        for start in self.executions():
            if start.job_id in found:
                found[start.job_id].append(start)
        return found

    async def started(self, job_id: str, count: int = 1) -> list[Execution]:
        """Return the executions of the job once there are that many."""
        await eventually(
            lambda: len(self.executions(job_id)) >= count,
            f"job {job_id} is started {count} times",
            RECOVERY_SECONDS,
        )
        return self.executions(job_id)

    async def wrote(self, job_id: str, event: str) -> Execution:
        """Return the first entry of this kind about the job."""
        found: list[Execution] = await eventually(
            lambda: self.executions(job_id, event), f"job {job_id}: {event}"
        )
        return found[0]


async def finished(p: pulse.Pulse, job_id: str, patience_seconds: float = RECOVERY_SECONDS) -> pulse.JobInfo:
    """Return the job once it is in a terminal state."""

    async def look() -> pulse.JobInfo | None:
        job = await p.get_job(job_id)
        return job if job.status.is_finished else None

    job: pulse.JobInfo = await eventually(look, f"job {job_id} is finished", patience_seconds)
    return job


async def all_completed(
    table: JobsTable, jobs: Iterable[pulse.JobHandle], patience_seconds: float = RECOVERY_SECONDS
) -> None:
    """Return once all jobs are finished; fail unless each of these exists and is COMPLETED."""
    await all_finished(table, patience_seconds)
    rows = await table.connection.fetch("SELECT * FROM pulse.all_jobs")
    completed = {str(row["id"]) for row in rows if row["status"] == "COMPLETED"}
    missing = {job.id for job in jobs} - completed
    assert not missing, [row for row in rows if str(row["id"]) in missing][:5] or f"lost: {missing}"


async def all_finished(table: JobsTable, patience_seconds: float = RECOVERY_SECONDS) -> None:
    """Return once all jobs are finished."""

    async def none_left() -> bool:
        return not await table.count("finished_at IS NULL")

    try:
        await eventually(none_left, "all jobs are finished", patience_seconds)
    except AssertionError:
        rows = await table.connection.fetch("SELECT * FROM pulse.jobs WHERE finished_at IS NULL LIMIT 5")
        raise AssertionError(f"these jobs are not finished: {rows}") from None


async def table_of(dsn: str) -> JobsTable:
    return JobsTable(await asyncpg.connect(dsn))


def free_port() -> int:
    """A port below those of outgoing connections, so that it stays free while its server restarts."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
