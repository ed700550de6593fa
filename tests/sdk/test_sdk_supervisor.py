"""The supervisor alone, with programs that only speak to it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pulse.supervision.processes import Command
from pulse.supervision.supervisor import Supervisor

PATIENCE_SECONDS = 30

CONNECTS = """#!{python}
import os, sys, time
sys.path[:0] = {path!r}
from pulse.supervision import supervised
supervised.hold_lifeline().send("ready")
with open({pids!r}, "a") as pids:
    print(os.getpid(), file=pids)
time.sleep(600)
"""

# Only its first start has children.
HAS_CHILDREN = """
import os, signal, subprocess, sys, time
sys.path[:0] = {path!r}
from pulse.supervision import supervised
line = supervised.hold_lifeline()
signal.signal(signal.SIGTERM, lambda *_: (line.send("drained"), sys.exit(0)))
signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
if not os.path.exists({pids!r}):
    fork = os.fork()
    if fork == 0:
        time.sleep(600)
    program = subprocess.Popen(["sleep", "600"])
    service = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open({pids!r}, "w") as pids:
        print(os.getpid(), fork, program.pid, service.pid, file=pids)
line.send("ready")
time.sleep(600)
"""

DIES_ONCE = """
import os, signal, sys, time
sys.path[:0] = {path!r}
from pulse.supervision import supervised
line = supervised.hold_lifeline()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if {connects}:
    line.send("connected")
with open({starts!r}, "a") as starts:
    starts.write("x")
if os.path.getsize({starts!r}) == 1:
    os.kill(os.getpid(), signal.SIGKILL)
line.send("ready")
time.sleep(600)
"""

# Its code is deployed by writing a word: what it does from then on.
DEPLOYED = """
import os, signal, sys, time
sys.path[:0] = {path!r}
from pulse.supervision import supervised
line = supervised.hold_lifeline()
code = open({code!r}).read()
with open({starts!r}, "a") as starts:
    print(line.number, code, os.getpid(), file=starts)
if code == "fails":
    sys.exit(3)
if code != "hangs":
    line.send("connected")
    line.send("ready")
asked = [] if code == "drains" else ["to stop"]
leave = lambda: (line.send("drained"), os._exit(0))
signal.signal(signal.SIGTERM, lambda *_: leave() if asked else asked.append("to stop"))
while True:
    time.sleep(600)
"""

# All orphans become its children, as in a container, whose first process it is.
FIRST_PROCESS = """
import asyncio, ctypes, os, sys
sys.path[:0] = {path!r}
from pulse.supervision.supervisor import Supervisor
from pulse.supervision.processes import Command
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
command = Command([sys.executable, "-c", {program!r}], is_detached=True)
asyncio.run(Supervisor(command, 1, reaps=True).run())
"""


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - it is another process that makes it so
            await asyncio.sleep(0.02)


async def test_process_that_the_system_cannot_start_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pulse.supervisor")
    program, pids = tmp_path / "program", tmp_path / "pids"
    program.write_text(CONNECTS.format(python=sys.executable, path=sys.path, pids=str(pids)))
    program.chmod(0o755)

    def started() -> list[int]:
        return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []

    supervisor = Supervisor(Command([str(program)]), 1)
    running = asyncio.create_task(supervisor.run(handle_signals=False))
    try:
        await until(lambda: bool(started()))
        program.rename(tmp_path / "elsewhere")  # as if there were no memory for another
        os.kill(started()[0], signal.SIGKILL)
        await until(lambda: "Process 1 cannot be started: " in caplog.text)
        (tmp_path / "elsewhere").rename(program)
        await until(lambda: len(started()) == 2)
    finally:
        supervisor.stop()
        assert await asyncio.wait_for(running, PATIENCE_SECONDS) == 0
    assert "was killed by SIGKILL" in caplog.text


@pytest.mark.parametrize("connects", [True, False])
async def test_first_process_that_is_killed_before_it_is_ready_is_started_again(
    tmp_path: Path, connects: bool
) -> None:
    """By a job, which it takes while what it declares is under way; or by the kernel, before that."""
    starts = tmp_path / "starts"
    program = DIES_ONCE.format(path=sys.path, starts=str(starts), connects=connects)
    supervisor = Supervisor(Command([sys.executable, "-c", program], is_detached=True), 1)
    running = asyncio.create_task(supervisor.run(handle_signals=False))
    await until(lambda: starts.exists() and len(starts.read_text()) == 2)
    supervisor.stop()
    assert await asyncio.wait_for(running, PATIENCE_SECONDS) == 0


def is_running(pid: int) -> bool:
    """True if there is such a process, and it is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Family:
    """A process that starts others: a fork, a program, and a service in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self._pids = directory / "pids"
        self.program = HAS_CHILDREN.format(path=sys.path, pids=str(self._pids))

    async def members(self) -> list[int]:
        """Wait until all were started. Returns their process ids, the parent's first."""
        await until(lambda: self._pids.exists() and self._pids.read_text().endswith("\n"))
        return [int(pid) for pid in self._pids.read_text().split()]

    def end(self) -> None:
        for pid in self._pids.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    family = Family(tmp_path)
    yield family
    family.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
async def test_what_a_process_has_started_ends_if_it_dies(family: Family, number: signal.Signals) -> None:
    """Also if it exits with 0, as a handler can do."""
    supervisor = Supervisor(Command([sys.executable, "-c", family.program], is_detached=True), 1)
    running = asyncio.create_task(supervisor.run(handle_signals=False))
    try:
        worker, fork, program, service = await family.members()
        os.kill(worker, number)
        await until(lambda: not is_running(fork) and not is_running(program))
        assert is_running(service), "it has a session of its own"
    finally:
        supervisor.stop()
        assert await asyncio.wait_for(running, PATIENCE_SECONDS) == 0


async def test_what_a_process_has_started_lives_on_if_it_ends_as_it_should(family: Family) -> None:
    supervisor = Supervisor(Command([sys.executable, "-c", family.program], is_detached=True), 1)
    running = asyncio.create_task(supervisor.run(handle_signals=False))
    _, *started = await family.members()
    supervisor.stop()
    assert await asyncio.wait_for(running, PATIENCE_SECONDS) == 0
    assert all(map(is_running, started))


async def test_first_process_of_a_container_leaves_no_zombies(family: Family) -> None:
    script = FIRST_PROCESS.format(path=sys.path, program=family.program)
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    try:
        members = await family.members()
        worker, *_, service = members
        os.kill(worker, signal.SIGKILL)
        os.kill(service, signal.SIGKILL)
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in members))
    finally:
        supervisor.terminate()
        assert await asyncio.wait_for(supervisor.wait(), PATIENCE_SECONDS) == 0


# ---------------------------------------------------------------- deployments


class Deployment:
    """Two processes whose code can be changed."""

    def __init__(self, directory: Path) -> None:
        self._code, self._starts = directory / "code", directory / "starts"
        program = DEPLOYED.format(path=sys.path, code=str(self._code), starts=str(self._starts))
        self.supervisor = Supervisor(Command([sys.executable, "-c", program], is_detached=True), 2)
        self._code.write_text("works")

    def deploy(self, code: str) -> None:
        self._code.write_text(code)
        self.supervisor.replace_all()

    async def started(self, number: int, code: str, times: int = 1) -> int:
        """Wait until the process has been started so often with this code. Returns its process id."""
        await until(lambda: len(self._started(code).get(number, [])) >= times)
        return self._started(code)[number][times - 1]

    async def first_started(self, code: str) -> int:
        """Wait until a process has been started with this code. Returns its number."""
        await until(lambda: bool(self._started(code)))
        return next(iter(self._started(code)))

    def _started(self, code: str) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for line in self._starts.read_text().splitlines() if self._starts.exists() else []:
            number, of_code, pid = line.split()
            if of_code == code:
                found.setdefault(int(number), []).append(int(pid))
        return found


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[Deployment]:
    deployment = Deployment(tmp_path)
    running = asyncio.create_task(deployment.supervisor.run(handle_signals=False))
    yield deployment
    deployment.supervisor.stop()
    deployment.supervisor.stop()
    await asyncio.wait_for(running, PATIENCE_SECONDS)


async def test_process_that_dies_while_another_is_replaced_is_started_again(deployment: Deployment) -> None:
    old = {number: await deployment.started(number, "works") for number in (1, 2)}
    deployment.deploy("hangs")
    other = 3 - await deployment.first_started("hangs")
    os.kill(old[other], signal.SIGKILL)
    await deployment.started(other, "hangs")


@pytest.mark.parametrize("bad", ["hangs", "fails"])
async def test_deployment_replaces_a_successor_that_does_not_get_ready(
    deployment: Deployment, bad: str
) -> None:
    old = {number: await deployment.started(number, "works") for number in (1, 2)}
    deployment.deploy(bad)
    await deployment.first_started(bad)
    assert all(map(is_running, old.values()))
    deployment.deploy("works")
    for number in (1, 2):
        await deployment.started(number, "works", times=2)
    await until(lambda: not any(map(is_running, old.values())))


async def test_process_that_dies_while_its_predecessor_drains_is_started_again(
    deployment: Deployment,
) -> None:
    for number in (1, 2):
        await deployment.started(number, "works")
    deployment.deploy("drains")
    number = await deployment.first_started("drains")
    deployment.deploy("works")
    os.kill(await deployment.started(number, "works", times=2), signal.SIGKILL)
    await deployment.started(number, "works", times=3)
