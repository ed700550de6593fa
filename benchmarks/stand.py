"""The test stand: a Postgres with its defaults, a fresh database per run, a pulsed and worker processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from benchmarks.recorder import Recording
from pulse_server.embedded import EmbeddedPostgres
from pulse_server.postgres.migrations.runner import apply_migrations

_PATIENCE_SECONDS = 60

Found = TypeVar("Found")


class Stand:
    def __init__(self, server_dsn: str | None, repeats: int) -> None:
        self.repeats = repeats
        self._folder = tempfile.TemporaryDirectory(prefix="pulse-bench-")
        self._postgres = None if server_dsn else EmbeddedPostgres(Path(self._folder.name) / "data")
        self._server_dsn = server_dsn

    @property
    def server_dsn(self) -> str:
        return self._server_dsn or (self._postgres.dsn if self._postgres else "")

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

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """A database with the schema and nothing in it."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        await self._administer(f"CREATE DATABASE {name}")
        dsn = urlunsplit(urlsplit(self.server_dsn)._replace(path=f"/{name}"))
        try:
            await apply_migrations(dsn)
            yield dsn
        finally:
            await self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    async def settle(self, dsn: str) -> None:
        """Leave no work of the preparation behind for the measured part to pay."""
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("VACUUM ANALYZE pulse.jobs")
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()

    @asynccontextmanager
    async def pulsed(self, dsn: str, **settings: str) -> AsyncIterator[str]:
        """A server process, with these environment variables. Yields its address."""
        log = Path(self._folder.name) / f"pulsed-{uuid.uuid4().hex[:8]}.log"
        environment = {**os.environ, "DB_HOST": dsn, "PULSE_GRPC_ADDR": "127.0.0.1:0", **settings}
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pulse_server.main"], env=environment, stderr=output
            )
        try:
            yield await _serving_address(process, log)
        finally:
            await _end(process)

    @asynccontextmanager
    async def dashboard(self, server: str) -> AsyncIterator[str]:
        """A dashboard of that server, as a process. Yields its address."""
        log = Path(self._folder.name) / f"dashboard-{uuid.uuid4().hex[:8]}.log"
        command = [sys.executable, "-m", "pulse_ui", "--addr", "127.0.0.1:0", "--server", server]
        with log.open("w") as output:
            process = subprocess.Popen(command, stderr=output)
        try:
            found = await _until(lambda: re.search(r"is at http://([^,]+),", log.read_text()))
            yield found[1] if found else ""
        finally:
            await _end(process)

    @asynccontextmanager
    async def worker(self, address: str, concurrency: int) -> AsyncIterator[Recording]:
        """A worker process with a no-op handler that records when each job was submitted and started."""
        recording = Recording.create(Path(self._folder.name))
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", address, str(concurrency), str(recording.path)]
        )
        try:
            await _until(lambda: recording.is_connected)
            yield recording
        finally:
            await _end(process)
            recording.close()

    async def _administer(self, statement: str) -> None:
        connection = await asyncpg.connect(self.server_dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


async def _serving_address(process: subprocess.Popen[bytes], log: Path) -> str:
    def serving() -> str | None:
        if process.poll() is not None:
            raise RuntimeError(f"pulsed ended: {log.read_text()}")
        for line in log.read_text().splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if entry["event"] == "serving":
                    return str(entry["address"])
        return None

    return str(await _until(serving))


async def _until(condition: Callable[[], Found]) -> Found:
    """Return what the condition returns, once that is true."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        await asyncio.sleep(0.005)
    raise TimeoutError("the stand did not get ready")


async def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.to_thread(process.wait, 15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
