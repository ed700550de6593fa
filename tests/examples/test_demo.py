"""The demo shows what happened, and leaves nothing behind however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.examples.programs import PATIENCE_SECONDS, ROOT, program

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for all that the demo makes; in the end nothing is in it, and no process knows of it.

    Not pytest's own, whose path is too long for the socket of a Postgres.
    """
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        place = Path(name)
        yield place
        await_fact(lambda: not leftovers(place), "the demo left neither processes nor files")


async def test_demo_shows_a_recovery_and_ends_with_a_summary(place: Path) -> None:
    async with program("-m", "examples.demo", "--seconds", "20", TMPDIR=str(place)) as demo:
        assert await demo.ends() == 0, demo.output
        assert not leftovers(place)
    lines = [" ".join(line.split()) for line in demo.output.splitlines()]
    story = " ".join(lines)  # a narrow terminal wraps sentences
    assert "was killed (kill -9) while it ran make-video" in story
    assert "was recovered: worker" in story
    assert "failed at its last attempt and goes to the dead letters" in story
    summary = dict(line.split()[:2] for line in lines[lines.index("Summary") :] if len(line.split()) > 1)
    assert int(summary["recovered"]) >= 1
    assert summary["dead-lettered"] == "1"
    assert summary["unfinished"] == "0"
    assert int(summary["completed"]) + 1 == int(summary["submitted"])
    assert "\x1b" not in demo.output
    assert "Traceback" not in demo.output


async def test_interrupt_ends_the_demo_in_order(place: Path) -> None:
    async with program("-m", "examples.demo", "--seconds", "20", TMPDIR=str(place)) as demo:
        await demo.says("all 20 are done")
        demo.process.send_signal(signal.SIGINT)
        assert await demo.ends() == 0
        assert not leftovers(place)
    assert "Summary" in demo.output
    assert "Traceback" not in demo.output


async def test_interrupt_while_the_server_starts_ends_the_demo_in_order(place: Path) -> None:
    async with program("-m", "examples.demo", TMPDIR=str(place)) as demo:
        await demo.says("starts, with a Postgres of its own")
        demo.process.send_signal(signal.SIGINT)
        assert await demo.ends() == 0
    assert "Traceback" not in demo.output


async def test_demo_shows_its_workers_on_a_dashboard_and_nothing_survives_when_it_is_killed(
    place: Path,
) -> None:
    async with program("-m", "examples.demo", TMPDIR=str(place)) as demo:
        await demo.says("Dashboard: http://127.0.0.1:")
        address = demo.lines[-1].split()[-1]
        page = await asyncio.to_thread(read_page, f"{address}/workers")
        assert "worker A" in page
        assert "worker B" in page
        assert len(processes_in(place)) > 5
        demo.process.kill()


def test_two_demos_that_start_together_have_a_dashboard_each() -> None:
    with ExitStack() as stack:
        dashboards = [stack.enter_context(dashboard()) for _ in range(2)]
        addresses = {
            next(line for line in one.stderr if "The dashboard is at" in line).split()[7]
            for one in dashboards
        }
        for one in dashboards:
            one.stdin.close()  # as when the demo is gone
            assert one.wait(PATIENCE_SECONDS) is not None
    assert len(addresses) == 2


def dashboard() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo.dashboard", "127.0.0.1:1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_demo_that_loses_its_server_says_so_and_fails(place: Path) -> None:
    async with program("-m", "examples.demo", "--seconds", "20", TMPDIR=str(place)) as demo:
        await demo.says("all 20 are done")
        (server,) = (pid for pid, command in processes_in(place).items() if "pulse_server.main" in command)
        os.kill(server, signal.SIGKILL)
        assert await demo.ends() == 1
    assert "The server does not answer any more." in demo.output
    assert "was recovered" not in demo.output
    assert "Traceback" not in demo.output


async def test_time_that_is_too_short_for_the_story_is_refused() -> None:
    async with program("-m", "examples.demo", "--seconds", "5") as demo:
        assert await demo.ends() == 2
    assert "the story takes 20 seconds" in demo.output


def read_page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as response:
        return str(response.read().decode())


def leftovers(place: Path) -> list[str]:
    """Return what is still there of the demo: processes, and files in its directory."""
    return [*processes_in(place).values(), *map(str, place.iterdir())]


def processes_in(place: Path) -> dict[int, str]:
    """Return the processes that were started with this directory in their environment, by their commands."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(place) in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def await_fact(is_so: Callable[[], bool], sentence: str) -> None:
    """Look until it is so; fail with the sentence when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"it never came true that {sentence}"
        time.sleep(0.02)
