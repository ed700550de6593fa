"""The processes of a run: what they take, and those that are left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
