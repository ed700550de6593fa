"""CPU and memory of process trees, from /proc. Where there is none, nothing is reported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

IS_AVAILABLE = Path("/proc/stat").exists()
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# In the first line of /proc/stat: user, nice, system, and time given to other guests of the host.
# Interrupts are left out: no process is charged for them, and our own packets cause some.
_BUSY_COLUMNS = (0, 1, 2, 7)


class Process(NamedTuple):
    parent: int
    own_ticks: int
    children_ticks: int
    """Ticks of its ended children that were waited for."""
    threads: int
    resident_pages: int


def read_processes() -> dict[int, Process]:
    """Return every process of the machine that can be seen."""
    found: dict[int, Process] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            text = (directory / "stat").read_text()
        except OSError:
            continue  # the process has ended
        # The name in parentheses may contain spaces and parentheses.
        fields = text.rpartition(")")[2].split()
        found[int(directory.name)] = Process(
            parent=int(fields[1]),
            own_ticks=int(fields[11]) + int(fields[12]),
            children_ticks=int(fields[13]) + int(fields[14]),
            threads=int(fields[17]),
            resident_pages=int(fields[21]),
        )
    return found


def family(processes: dict[int, Process], roots: Iterable[int]) -> set[int]:
    """Return the processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    members: set[int] = set()
    waiting = [root for root in roots if root in processes]
    while waiting:
        pid = waiting.pop()
        if pid not in members:
            members.add(pid)
            waiting += children.get(pid, [])
    return members


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return the CPU time of the processes and their descendants so far, ended ones included."""
    processes = read_processes()
    return sum(_cpu_seconds_of(pid, processes[pid]) for pid in family(processes, roots))


def _cpu_seconds_of(pid: int, process: Process) -> float:
    children = process.children_ticks / _TICKS_PER_SECOND
    # A tick is 10 ms, and each of a dozen backends is off by up to one. The scheduler counts nanoseconds, of
    # one thread: enough for the processes of Postgres.
    if process.threads == 1:
        with suppress(OSError, ValueError, IndexError):
            return children + int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return children + process.own_ticks / _TICKS_PER_SECOND


def resident_megabytes(roots: Iterable[int]) -> float:
    """Return the memory that these processes and their descendants have in use, in MB."""
    processes = read_processes()
    pages = sum(processes[pid].resident_pages for pid in family(processes, roots))
    return pages * _PAGE_BYTES / 1e6


def machine_cpu_seconds() -> float:
    """Return the CPU time of all processes, and the time that the host took away."""
    with Path("/proc/stat").open() as file:
        columns = file.readline().split()[1:]
    return sum(int(columns[column]) for column in _BUSY_COLUMNS) / _TICKS_PER_SECOND


class BackgroundLoad:
    """The CPU that other processes use while something is measured."""

    def __init__(self, postmaster: int | None) -> None:
        """If the process of Postgres is unknown, its CPU cannot be subtracted: see `is_measurable`."""
        self._ours = (os.getpid(), postmaster or os.getpid())
        self.is_measurable = IS_AVAILABLE and postmaster is not None
        self._cpu = 0.0
        self._wall = 0.0

    @property
    def cores(self) -> float:
        """How many cores other processes used on average in `watched`, since the last `forget`."""
        return max(0.0, self._cpu) / self._wall if self._wall else 0.0

    def forget(self) -> None:
        self._cpu = self._wall = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for the length of the block. Wrap exactly the part that the figure measures."""
        if not self.is_measurable:
            yield
            return
        began, strange = time.monotonic(), self._strange_seconds()
        try:
            yield
        finally:
            self._cpu += self._strange_seconds() - strange
            self._wall += time.monotonic() - began

    def _strange_seconds(self) -> float:
        return machine_cpu_seconds() - cpu_seconds(self._ours)


def find_postmaster(data_directory: Path) -> int | None:
    """Return the process of the server on that directory, or None if it cannot be seen from here."""
    try:
        pid = int((data_directory / "postmaster.pid").read_text().splitlines()[0])
        is_it = Path(f"/proc/{pid}/cwd").samefile(data_directory)
    except (OSError, ValueError, IndexError):
        return None
    return pid if is_it else None
