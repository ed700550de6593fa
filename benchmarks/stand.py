"""The test stand: a Postgres with its defaults, a fresh database per run, a pulsed and worker processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from benchmarks.crew import WORKER, Crew, CrewMember
from benchmarks.meters import BackgroundLoad, find_postmaster
from benchmarks.processes import Server, end, serving_address, until
from benchmarks.recorder import CAPACITY, Recording
from benchmarks.verdicts import Verdict
from pulse_server.database.schema import apply_migrations
from pulse_server.embedded import EmbeddedPostgres

# Postgres' own defaults, which the figures promise: pulsed changes them for its embedded Postgres.
_POSTGRES_DEFAULTS = {"max_wal_size": "1GB"}
_TRIAL_DIVISOR = 20


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of e2e's load generator."""

    jobs: int = 2_000
    streams: int = 8
    concurrency: int = 20
    producers: int = 8


@dataclass(frozen=True, slots=True)
class Lengths:
    """The length of scenarios that watch whether something grows."""

    held_seconds: float = 240.0
    soak_minutes: float = 30.0


class Stand:
    def __init__(
        self,
        server_dsn: str | None,
        repeats: int,
        load: Load | None = None,
        lengths: Lengths | None = None,
        *,
        is_trial: bool = False,
    ) -> None:
        self.repeats = repeats
        self.load = load or Load()
        self.lengths = lengths or Lengths()
        self.is_trial = is_trial
        self.python: str | Path = sys.executable
        """The interpreter of servers and workers."""
        self.is_brief = False
        """Measure only figures that targets judge, without raw SQL."""
        self.plain_python: Path | None = None
        """An interpreter without PGO, beside an optimized one: some figures are taken on both."""
        self.disturbed_runs = 0
        self.verdicts: list[Verdict] = []
        self.background = BackgroundLoad(None)
        self.postmaster: int | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="pulse-bench-")
        data = self.folder / "data"
        self._postgres = None if server_dsn else EmbeddedPostgres(data, settings=_POSTGRES_DEFAULTS)
        self._server_dsn = server_dsn

    @property
    def folder(self) -> Path:
        """The folder for files of the run; deleted with the stand."""
        return Path(self._folder.name)

    @property
    def server_dsn(self) -> str:
        return self._server_dsn or (self._postgres.dsn if self._postgres else "")

    def sized(self, jobs: int) -> int:
        """Return the number of jobs to use: all, or in a trial a fraction."""
        return max(20, jobs // _TRIAL_DIVISOR) if self.is_trial else jobs

    def __enter__(self) -> Stand:
        if self._postgres:
            self._postgres.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._postgres:
            self._postgres.stop()
        self._folder.cleanup()

    @contextmanager
    def running_on(self, python: Path) -> Iterator[None]:
        """Start servers and workers on another interpreter for the length of the block."""
        usual, self.python = self.python, python
        try:
            yield
        finally:
            self.python = usual

    async def look_around(self) -> None:
        """Find the process of the database, to separate its CPU from other processes."""
        connection = await asyncpg.connect(self.server_dsn)
        try:
            reported = Path(await connection.fetchval("SHOW data_directory"))
        finally:
            await connection.close()
        # In a separate namespace the server may know its directory by another name than we do.
        own = [self.folder / "data" / "postgres"] if self._postgres else []
        self.postmaster = next(filter(None, map(find_postmaster, [*own, reported])), None)
        self.background = BackgroundLoad(self.postmaster)

    @asynccontextmanager
    async def empty_database(self) -> AsyncIterator[str]:
        """A database with nothing in it."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        await self._administer(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(urlsplit(self.server_dsn)._replace(path=f"/{name}"))
        finally:
            await self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """A database with the schema of pulse and no job in it."""
        async with self.empty_database() as dsn:
            await apply_migrations(dsn)
            yield dsn

    async def settle(self, dsn: str) -> None:
        """Leave no work of the preparation behind for the measured part to pay."""
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("VACUUM ANALYZE", timeout=600)
            await connection.execute("CHECKPOINT", timeout=600)
        finally:
            await connection.close()

    @asynccontextmanager
    async def pulsed(
        self, dsn: str, settings: Mapping[str, str] | None = None, *, with_metrics: bool = False
    ) -> AsyncIterator[Server]:
        """A server process, with these environment variables.

        With metrics it also samples the database every fifteen seconds, which a large table notices.
        """
        name = f"pulsed-{uuid.uuid4().hex[:8]}"
        log, socket = self.folder / f"{name}.log", self.folder / f"{name}.sock"
        environment = {**os.environ, "DB_HOST": dsn, "PULSE_GRPC_ADDR": "127.0.0.1:0", **(settings or {})}
        if with_metrics:
            environment["PULSE_HTTP_ADDR"] = f"unix:{socket}"
        with log.open("w") as output:
            process = subprocess.Popen(
                [self.python, "-m", "pulse_server.main"], env=environment, stderr=output
            )
        try:
            address = await serving_address(process, log)
            yield Server(address, process.pid, socket if with_metrics else None)
        finally:
            await end(process)

    @asynccontextmanager
    async def replicas(self, dsn: str, count: int) -> AsyncIterator[list[Server]]:
        """Several servers on one database."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.pulsed(dsn)) for _ in range(count)]

    @asynccontextmanager
    async def dashboard(self, server: str) -> AsyncIterator[str]:
        """A dashboard of that server, as a process. Yields its address."""
        log = self.folder / f"dashboard-{uuid.uuid4().hex[:8]}.log"
        command = [self.python, "-m", "pulse_ui", "--addr", "127.0.0.1:0", "--server", server]
        with log.open("w") as output:
            process = subprocess.Popen(command, stderr=output)
        try:
            found = await until(lambda: re.search(r"is at http://([^,]+),", log.read_text()))
            yield found[1] if found else ""
        finally:
            await end(process)

    @asynccontextmanager
    async def crew(
        self,
        addresses: Sequence[str],
        concurrency: int,
        *,
        processes: int = 1,
        topics: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        program: str = WORKER,
        recorded: int = CAPACITY,
    ) -> AsyncIterator[Crew]:
        """Worker processes, spread over the addresses, that have started and wait to be let loose.

        Each worker keeps its last `recorded` jobs.
        """
        members: list[CrewMember] = []
        try:
            for number in range(processes):
                recording = Recording.create(self.folder, recorded)
                address = addresses[number % len(addresses)]
                members.append(
                    CrewMember.start(
                        recording,
                        address,
                        concurrency,
                        topics,
                        dict(environment or {}),
                        program,
                        self.python,
                    )
                )
            crew = Crew(members)
            await crew.is_prepared()
            yield crew
        finally:
            for member in members:
                await member.end()

    async def _administer(self, statement: str) -> None:
        connection = await asyncpg.connect(self.server_dsn)
        try:
            await connection.execute(statement, timeout=600)
        finally:
            await connection.close()
