"""The workers of a run: one alone, which is started again as systemd does it, and two under a supervisor."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.eventually import eventually
from tests.system.stage import Process, Stage

# ---------------------------------------------------------------- vitals
# The processes of a run: what they take, and those that are left.


# In the environment of the workers, and of everything that they start.
MARK = "SURVIVAL_RUN"


@dataclass(frozen=True)
class Sighting:
    """A process of the run."""

    pid: int
    parent: int
    session: int
    """The process id of the worker that it belongs to."""
    command: str
    threads: int
    resident_bytes: int

    @property
    def is_worker(self) -> bool:
        """True for a process that is connected to pulsed, and not for one that its handlers have forked."""
        return "pulse_cli" in self.command and "--processes" not in self.command and self.pid == self.session

    @property
    def is_handler_process(self) -> bool:
        """True for a child process that runs handlers with process=True."""
        return "child_process" in self.command

    def __str__(self) -> str:
        return f"pid {self.pid} (parent {self.parent}): {self.command[:120]}"


def processes_of(mark: str) -> list[Sighting]:
    """Return the living processes that were started with this mark, or by one of them."""
    return list(_look(f"{MARK}={mark}".encode()))


def _look(needle: bytes) -> Iterator[Sighting]:
    page = os.sysconf("SC_PAGESIZE")
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):
            if needle not in (place / "environ").read_bytes().split(b"\0"):
                continue
            # The name, in parentheses, may have spaces.
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z":
                continue  # dead, and known to its parent
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            resident = int((place / "statm").read_text().split()[1]) * page
            yield Sighting(
                int(place.name), int(fields[1]), int(fields[3]), command, int(fields[17]), resident
            )


def zombies_of(parent: int) -> int:
    """Return how many children of the process are dead, and not known to it yet."""
    found = 0
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            found += fields[0] == "Z" and int(fields[1]) == parent
    return found


# ---------------------------------------------------------------- workers


CONCURRENCY = 8
MAX_MEMORY_MIB = 200
DRAIN_SECONDS = 5
_LOOK_SECONDS = 0.5
_KILL_EVERY_SECONDS = 9.0
_BLOCKED = os.EX_SOFTWARE
# They end after seconds of CPU, which a busy machine gives them slowly.
_FROZEN_SECONDS = 60.0
_OPTIONS = (
    *("-m", "pulse_cli", "worker", "faults.handlers.app:p"),
    *("--concurrency", str(CONCURRENCY), "--drain-timeout", f"{DRAIN_SECONDS}s"),
    *("--max-memory", f"{MAX_MEMORY_MIB}M"),
)
_SUPERVISED = (*_OPTIONS, "--processes", "2", "--max-jobs", "400")
# A full memory, lost slots, a blocked event loop, a SIGKILL, a frozen interpreter.
_EXPECTED_CODES = (0, 1, _BLOCKED, -signal.SIGKILL, -signal.SIGPROF)
_STOPPING = re.compile(r"pulse\.worker: (?:Stopping|Worker \S+ has stopped)")
_ENDED = re.compile(r"Process \d+ \(pid (\d+)\).* (?:exited with code 70|was killed by)")


@dataclass
class Workers:
    """Their processes, and what is known of their deaths."""

    stage: Stage
    address: str
    mark: str
    random: Random
    crashed: set[int] = field(default_factory=set)
    """Processes of workers that died with jobs in hand."""
    ends: dict[str, int] = field(default_factory=dict)
    most_threads: int = 0
    most_resident_bytes: int = 0
    most_zombies: int = 0
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lives: list[Process] = []
        self._bereft: set[int] = set()  # workers whose supervisor was killed
        self.alone = self._start("alone", _OPTIONS)
        self.supervisor = self._start("supervisor", _SUPERVISED)

    def _start(self, name: str, arguments: tuple[str, ...]) -> Process:
        log = self.stage.directory / f"{name}-{len(self.stage.processes)}.log"
        environment = {
            "PULSE_ADDR": self.address,
            "JOURNAL": str(self.stage.journal.path),
            MARK: self.mark,
        }
        process = Process(name, log, arguments, environment, own_session=True)
        self.stage.processes.append(process)
        self._lives.append(process)
        return process

    async def connected(self) -> None:
        """Return once all workers are connected."""
        await eventually(lambda: "Connected to pulsed" in self.alone.log, "the worker connects")
        await eventually(
            lambda: self.supervisor.log.count("Connected to pulsed") >= 2, "two processes connect"
        )

    # ------------------------------------------------------------ while it runs

    async def keep(self) -> None:
        """Start the lone worker again when it ends, and take samples. Runs until it is canceled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()
            if not self.alone.is_running:
                code = await self.alone.ended()
                self._count(f"alone ended with {code}")
                if code not in _EXPECTED_CODES:
                    self.complaints.append(f"the lone worker ended with {code}: {self.alone.log[-2000:]}")
                if code == _BLOCKED or code < 0:
                    self.crashed.add(self.alone.pid)
                    self._end_what_is_left_of({self.alone.pid})
                self.alone = self._start("alone", _OPTIONS)
            if not self.supervisor.is_running:
                self.complaints.append(f"the supervisor ended: {self.supervisor.log[-2000:]}")
                return

    def look(self) -> None:
        """Take a sample of all processes."""
        for seen in processes_of(self.mark):
            if seen.is_worker:
                self.most_threads = max(self.most_threads, seen.threads)
                self.most_resident_bytes = max(self.most_resident_bytes, seen.resident_bytes)
                self.most_zombies = max(self.most_zombies, zombies_of(seen.pid))

    async def kill_now_and_then(self, seconds: float) -> None:
        """Kill workers, their children and, once, the supervisor. Runs until it is canceled."""
        loop = asyncio.get_running_loop()
        half = loop.time() + seconds / 2
        is_supervisor_dead = False
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 1.0) * min(_KILL_EVERY_SECONDS, seconds / 3))
            if not is_supervisor_dead and loop.time() > half:
                is_supervisor_dead = True
                self._note_crashes()
                # Its processes drain. No log has how each of them ends.
                self._bereft = {seen.pid for seen in processes_of(self.mark) if seen.is_worker}
                self.crashed |= self._bereft
                old, self.supervisor = self.supervisor, self._start("supervisor", _SUPERVISED)
                self._lives.remove(old)
                old.kill()
                self._count("supervisor killed")
                continue
            if "Connected to pulsed" not in self.supervisor.log:
                continue  # one whose first process dies before it is connected ends, by its promise
            seen = processes_of(self.mark)
            if self.random.random() < 0.5:
                self._kill([process for process in seen if process.is_handler_process], "child killed")
            else:
                killed = self._kill([process for process in seen if process.is_worker], "worker killed")
                self.crashed |= {process.pid for process in killed}

    def _kill(self, among: list[Sighting], what: str) -> list[Sighting]:
        victims = self.random.sample(among, min(1, len(among)))
        for victim in victims:
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                self._count(what)
        return victims

    def _count(self, what: str) -> None:
        self.ends[what] = self.ends.get(what, 0) + 1

    def _note_crashes(self) -> None:
        for process in self._lives:
            self.crashed |= {int(pid) for pid in _ENDED.findall(process.log)}

    # ------------------------------------------------------------ the end

    async def without(self, frozen: Set[int]) -> None:
        """Return once these processes have ended by themselves. Each that does not is a complaint."""

        def left() -> set[int]:
            return {seen.pid for seen in processes_of(self.mark)} & frozen

        try:
            await eventually(lambda: not left(), "frozen processes have ended", _FROZEN_SECONDS)
        except AssertionError:
            self.complaints.append(f"frozen processes do not end: {sorted(left())}")

    async def stop(self) -> None:
        """Stop all workers with SIGTERM. Each has to end well, and to leave nothing behind."""
        self._note_crashes()
        # One that leaves by itself, for its memory or its lost slots, has seconds for its exit. A signal in
        # that time ends it at once.
        leaving = [self.alone] if _STOPPING.search(self.alone.log) else []
        for process in (self.alone, self.supervisor):
            if process not in leaving:
                process.signal(signal.SIGTERM)
        for process in (self.alone, self.supervisor):
            try:
                code = await process.ended()
            except AssertionError:
                self.complaints.append(f"{process.name} does not end after SIGTERM: {process.log[-2000:]}")
                continue
            if code not in (_EXPECTED_CODES if process in leaving else (0,)):
                self.complaints.append(f"{process.name} ended with {code}: {process.log[-2000:]}")

        def is_over() -> bool:
            self._end_what_is_left_of(self._bereft)
            return not processes_of(self.mark)

        try:
            await eventually(is_over, "all processes have ended", 20)
        except AssertionError:
            self.complaints += [f"left behind: {process}" for process in processes_of(self.mark)]

    def _end_what_is_left_of(self, workers: Set[int]) -> None:
        """Kill what dead workers have left behind, as systemd does if there is no supervisor to do it."""
        seen = processes_of(self.mark)
        dead = workers - {process.pid for process in seen}
        for process in seen:
            if process.session in dead:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """Leave nothing behind, whatever happened."""
        for process in processes_of(self.mark):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
