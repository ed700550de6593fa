"""The Postgres of the kits of a process: one queue at a time, nothing left behind, and a given server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import pulse
from pulse.testing import Kit
from tests.rows import each_row
from tests.testing import shop
from tests.testing.projects import run_suite, suite_result

TASKS = """
    import pulse

    p = pulse.SyncPulse()


    @p.job("double")
    def double(n: int) -> int:
        return n * 2
"""
TESTS = """
    import pytest
    from tasks import double


    @pytest.mark.parametrize("n", range(20))
    def test_double(pulse_kit, n):
        assert pulse_kit.jobs == []
        handle = double.enqueue(n)
        assert pulse_kit.drain() == {"completed": 1}
        assert pulse_kit.result(handle) == n * 2
"""
OPEN_AND_WAIT = """
    from pulse.testing import Kit
    with Kit():
        print("open", flush=True)
        input()
"""


def test_kit_in_a_kit_is_refused_and_the_first_goes_on(pulse_kit: Kit) -> None:
    shop.double.enqueue(0)
    with pytest.raises(AssertionError, match="A kit is open in this process already"), Kit():
        pass
    assert pulse_kit.drain() == {"completed": 1}


def test_kit_in_another_thread_is_refused_while_one_is_open(pulse_kit: Kit) -> None:
    refused: list[AssertionError] = []

    def enter() -> None:
        try:
            Kit().__enter__()
        except AssertionError as error:
            refused.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(refused) == 1
    shop.double.enqueue(0)
    assert pulse_kit.drain() == {"completed": 1}


def test_kits_of_threads_follow_each_other() -> None:
    counted: list[dict[str, int]] = []

    def use() -> None:
        with Kit() as kit:
            shop.double.enqueue(0)
            counted.append(kit.drain())

    for _ in range(3):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert counted == [{"completed": 1}] * 3


def test_kit_that_is_not_open_is_refused() -> None:
    kit = Kit()
    with pytest.raises(AssertionError, match="This kit is not open"):
        kit.drain()
    with kit:
        shop.double.enqueue(0)
    with pytest.raises(AssertionError, match="inside of the block"):
        _ = kit.jobs


def test_job_that_a_failed_test_left_is_not_in_the_next_kit() -> None:
    def fail() -> None:
        with Kit() as kit:
            shop.double.options(delay=timedelta(days=1)).enqueue(0)
            shop.s.enqueue("shop.order", {"item": "book"})
            kit.drain()
            kit.advance(hours=3, schedules=True)
            kit.advance(days=400)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with Kit() as kit:
        assert kit.jobs == []
        assert kit.drain() == {}
        assert abs(kit.now - datetime.now(UTC)) < timedelta(minutes=1)


async def test_job_of_an_interrupted_drain_runs_in_the_next(pulse_kit: Kit) -> None:
    p = pulse.Pulse("localhost:1")
    runs: list[int] = []
    has_begun = asyncio.Event()

    @p.job("slow")
    async def slow(n: int) -> None:
        runs.append(n)
        if len(runs) == 2:
            has_begun.set()
            await asyncio.sleep(60)

    pulse_kit.use(p)
    for n in range(3):
        await slow.enqueue(n)
    draining = asyncio.create_task(pulse_kit.adrain())
    await has_begun.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert [job.attempts for job in pulse_kit.jobs] == [1, 0, 0]
    assert await pulse_kit.adrain() == {"completed": 2}
    assert runs == [0, 1, 1, 2]


def test_what_a_verb_takes_is_named(pulse_kit: Kit) -> None:
    def plain() -> None: ...

    for given in (plain, 7, object()):
        with pytest.raises(AssertionError, match=r"a job of the application(?s:.*)@p.job"):
            pulse_kit.one(given)  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match=r"one job that was enqueued(?s:.*)pulse_kit.one"):
            pulse_kit.run(given)  # type: ignore[arg-type]


@each_row(
    "given, units, shown",
    [
        ((3,), {}, "3"),
        (("1d",), {}, "'1d'"),
        ((), {"day": 1}, "day=1"),
        ((), {"days": "1"}, "days='1'"),
        ((), {"days": float("nan")}, "days=nan"),
        ((), {"weeks": 10**9}, "weeks=1000000000"),
    ],
)
def test_what_advance_takes_is_named(given: tuple[Any, ...], units: dict[str, Any], shown: str) -> None:
    with pytest.raises(AssertionError, match=rf"a timedelta, or units of one.*, not {re.escape(shown)}\.$"):
        Kit().advance(*given, **units)


def test_advance_returns_what_drain_does(pulse_kit: Kit) -> None:
    job = shop.s.enqueue("shop.order", {"item": "book"})
    assert pulse_kit.advance(days=1) == {}
    assert pulse_kit.advance(days=3.5, drain=True, errors="keep") == {"sleeping": 1, "waiting": 1}
    pulse_kit.signal(job, "approved", "Ann")
    assert pulse_kit.advance(drain=True) == {"completed": 2}


def test_clock_moves_by_centuries(pulse_kit: Kit) -> None:
    handle = shop.double.options(delay=timedelta(days=200)).enqueue(0)
    pulse_kit.advance(days=365 * 500)
    assert pulse_kit.now.year > 2500
    assert pulse_kit.drain() == {"completed": 1}
    assert pulse_kit.result(handle) == 0
    shop.double.options(delay=timedelta(days=1)).enqueue(0)
    assert pulse_kit.advance(days=2, drain=True) == {"completed": 1}


def test_suite_in_parallel_processes(tmp_path: Path) -> None:
    files = {"tasks.py": TASKS, "test_tasks.py": TESTS}
    assert "20 passed" in suite_result(tmp_path, files, "-n", "2", TMPDIR=str(tmp_path))
    assert list(tmp_path.glob("pulse-kit-*")) == []


@pytest.fixture
async def server_of_kits(cluster_dsn: str) -> AsyncIterator[str]:
    """The address of the run's server. Its kits are those of one test, in whatever process others run."""
    session = await asyncpg.connect(cluster_dsn)
    await session.execute("SELECT pg_advisory_lock(hashtext('tests/testing'), hashtext('kits'))")
    yield cluster_dsn
    await session.close()


async def _databases(cluster_dsn: str) -> set[str]:
    session = await asyncpg.connect(cluster_dsn)
    try:
        return {
            row[0]
            for row in await session.fetch(
                r"SELECT datname FROM pg_database WHERE datname ~ '^pulse_kit_\d+$'"
            )
        }
    finally:
        await session.close()


async def test_given_server_is_used_and_nothing_is_left(tmp_path: Path, server_of_kits: str) -> None:
    files = {"tasks.py": TASKS, "test_tasks.py": TESTS}
    before = await _databases(server_of_kits)
    given = {"TEST_DB_URL": server_of_kits, "TMPDIR": str(tmp_path)}
    assert "20 passed" in suite_result(tmp_path, files, "-n", "2", **given)
    assert await _databases(server_of_kits) - before == set()


async def test_database_of_a_killed_process_is_dropped_by_the_next(server_of_kits: str) -> None:
    before = await _databases(server_of_kits)
    living, killed = (_opened(server_of_kits) for _ in range(2))
    both = await _databases(server_of_kits) - before
    assert len(both) == 2
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    later = _opened(server_of_kits)
    left = await _databases(server_of_kits) - before
    assert len(left) == 2
    assert len(left & both) == 1, "the living one keeps its own"
    for process in (living, later):
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    assert await _databases(server_of_kits) - before == set()


async def test_processes_that_name_different_databases_of_a_server_keep_theirs(
    server_of_kits: str, database_dsn: str
) -> None:
    """Advisory locks are of one database, and each process has its lock in the one that it named."""
    before = await _databases(server_of_kits)
    first = _opened(server_of_kits)
    second = _opened(database_dsn)
    assert len(await _databases(server_of_kits) - before) == 2
    for process in (first, second):
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


def _opened(cluster_dsn: str) -> subprocess.Popen[str]:
    """Start a process that has a kit open."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OPEN_AND_WAIT)],
        env={**os.environ, "TEST_DB_URL": cluster_dsn},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("postgres://none@127.0.0.1:1/x", "The testing kit cannot use the Postgres of TEST_DB_URL"),
        ("mysql://x", "The testing kit cannot use the Postgres of TEST_DB_URL"),
    ],
)
def test_server_that_cannot_be_used_is_named(tmp_path: Path, given: str, sentence: str) -> None:
    files = {"tasks.py": TASKS, "test_tasks.py": TESTS}
    ended = run_suite(tmp_path, files, "-x", TEST_DB_URL=given)
    assert sentence in ended.stdout


def test_missing_postgres_is_named_with_what_to_do(tmp_path: Path) -> None:
    conftest = """
        from pulse_server.embedded import directory

        directory.candidate_directories = lambda: iter(())
    """
    ended = run_suite(tmp_path, {"tasks.py": TASKS, "test_tasks.py": TESTS, "conftest.py": conftest}, "-x")
    assert "The testing kit needs a Postgres" in ended.stdout
    assert "TEST_DB_URL" in ended.stdout
    assert "embedded" in ended.stdout


def test_postgres_that_was_ended_is_started_again(tmp_path: Path) -> None:
    tests = """
        import os
        import signal
        import time
        from pathlib import Path

        from tasks import double
        from pulse.testing import Kit, store


        def test_double():
            for _ in range(2):
                with Kit() as kit:
                    double.enqueue(1)
                    assert kit.drain() == {"completed": 1}
                    data = store._store.run(store._store.fetch("SHOW data_directory"))[0][0]
                os.kill(int(Path(data, "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
                while Path(data, "postmaster.pid").exists():
                    time.sleep(0.01)
    """
    assert "1 passed" in suite_result(tmp_path, {"tasks.py": TASKS, "test_tasks.py": tests})
