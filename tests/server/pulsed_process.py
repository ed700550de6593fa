"""pulsed as a process of its own, started, watched and stopped by a test."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.eventually import PATIENCE_SECONDS

_SOURCES = Path(__file__).resolve().parents[2] / "src"


@dataclass
class Pulsed:
    """A running pulsed. What it writes is kept, line by line."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    address: str = ""

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log, each line parsed: that each is JSON is what this relies on."""
        return [json.loads(line) for line in self.lines]

    async def wait_for(self, event: str) -> dict[str, Any]:
        """Read the log up to the next line with this event and return it."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self.process.stderr.readline()).decode().rstrip("\n"):
                self.lines.append(line)
                entry: dict[str, Any] = json.loads(line)
                if entry["event"] == event:
                    return entry
        raise AssertionError(f"pulsed ended without saying {event}: {self.log}")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Read what it still writes and return its exit code once it is gone."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            rest = (await self.process.stderr.read()).decode()
            self.lines += rest.splitlines()
            return await self.process.wait()


@asynccontextmanager
async def pulsed(dsn: str, *arguments: str, **environment: str) -> AsyncIterator[Pulsed]:
    """Run pulsed on a free port of this machine; the block starts once it serves. Killed at its end."""
    async with starting_pulsed(dsn, *arguments, **environment) as server:
        server.address = (await server.wait_for("serving"))["address"]
        yield server


@asynccontextmanager
async def starting_pulsed(dsn: str, *arguments: str, **environment: str) -> AsyncIterator[Pulsed]:
    """The same without the wait until it serves."""
    process = await _start(arguments, {"PULSE_GRPC_ADDR": "127.0.0.1:0", "DB_HOST": dsn} | environment)
    try:
        yield Pulsed(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def caller_of(server: Pulsed) -> AsyncIterator[Any]:
    """A stub for the calls of the server."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield PulseServiceStub(channel)


async def run_pulsed(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run pulsed to its end. Returns its exit code, its output and what it wrote to standard error."""
    process = await _start(arguments, environment)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def _start(arguments: tuple[str, ...], environment: dict[str, str]) -> asyncio.subprocess.Process:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DB_", "PG"))
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pulse_server.main",
        *arguments,
        env=inherited | {"PYTHONPATH": str(_SOURCES)} | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
