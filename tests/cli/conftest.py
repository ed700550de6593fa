import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pulse_cli import tuning
from tests.cli.command_line import CommandLine
from tests.cli.serving import serving
from tests.ports import reserved_address
from tests.postgres_cluster import Databases

TASKS = """
import asyncio
from datetime import timedelta
import pulse

app = pulse.Pulse()

@app.job("ok")
async def ok() -> None: ...

@app.job("answer")
async def answer(number: int) -> dict[str, int]:
    return {"answer": number * 7}

@app.job("fatal")
async def fatal(text: str = "it cannot be done") -> None:
    raise pulse.Discard(text)

@app.job("flaky")
async def flaky() -> None:
    raise pulse.Retry(timedelta(milliseconds=10), "not now")

@app.job("forever")
async def forever() -> None:
    await asyncio.Event().wait()

@app.job("later")
async def later(ctx: pulse.Context) -> None:
    if ctx.run == 1:
        raise pulse.Snooze(timedelta(milliseconds=10), "the shop is closed")

@app.job("endless", timeout=timedelta(milliseconds=50), max_attempts=1)
async def endless() -> None:
    await asyncio.Event().wait()
"""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    """The address of a pulsed without users. Tests use topics of their own."""
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address


@pytest.fixture
def pulse(address: str, tmp_path: Path) -> CommandLine:
    """`pulse` with the address of pulsed."""
    return CommandLine(tmp_path, {"PULSE_ADDR": address})


@pytest.fixture(scope="module")
def own_database(databases: Databases, template_database: str) -> Iterator[str]:
    """A database that one module has for itself."""
    with databases.temporary(template_database) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def own_address(own_database: str) -> Iterator[str]:
    """The address of a pulsed of this module alone: it has no other jobs."""
    with serving(own_database, PULSE_LEASE_TTL="10m") as address:  # no lease ends in a test
        yield address


@pytest.fixture
def own(own_address: str, tmp_path: Path) -> CommandLine:
    """`pulse` with that address."""
    return CommandLine(tmp_path, {"PULSE_ADDR": own_address})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep a call waiting for longer than a user should wait."""
    monkeypatch.setattr(tuning, "CALL_TIMEOUT", timedelta(seconds=30))


@pytest.fixture
def alone(tmp_path: Path) -> CommandLine:
    """`pulse` without any setting."""
    return CommandLine(tmp_path)


@pytest.fixture
def kept_address() -> Iterator[str]:
    """An address that no other process gets while the test has no server there."""
    with reserved_address() as address:
        yield address


@pytest.fixture
def topic() -> str:
    """A topic of this test alone, without workers."""
    return f"topic-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def _worker(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    directory = tmp_path_factory.mktemp("application")
    (directory / "tasks.py").write_text(TASKS)
    command = CommandLine(directory, {"PULSE_ADDR": address})
    with command.process("worker", "tasks:app", cwd=directory) as process:
        yield
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture
def working(pulse: CommandLine, _worker: None) -> CommandLine:
    """`pulse`, beside a worker for the topics ok, fatal, flaky and forever."""
    return pulse


@pytest.fixture
def stored(pulse: CommandLine) -> Callable[..., str]:
    """Stores a job and returns its id."""

    def store(topic: str, *options: str) -> str:
        return pulse("submit", topic, *options, "-o", "plain").out.strip()

    return store
