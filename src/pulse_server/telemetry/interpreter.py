"""Metrics of a process and its Python, under the names that common dashboards expect."""

from __future__ import annotations

import gc
import mmap
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from pulse_server.telemetry.instruments import Counter, Gauge, Instrument, Labels

_PROC = Path("/proc")
_GENERATION = ("generation",)


def interpreter_instruments() -> list[Instrument]:
    """The current numbers. Without /proc its numbers are left out."""
    return [*_process(), _python(), *_collector()]


def _process() -> list[Instrument]:
    cpu_seconds: dict[Labels, float] = {(): time.process_time()}
    return [
        Counter("process_cpu_seconds", "User and system CPU time of this process.", values=cpu_seconds),
        _gauge("process_start_time_seconds", "When this process started, in Unix time.", _started_at),
        _gauge("process_virtual_memory_bytes", "Address space in use.", lambda: _memory_bytes()[0]),
        _gauge("process_resident_memory_bytes", "Memory in use.", lambda: _memory_bytes()[1]),
        _gauge("process_open_fds", "Open file descriptors.", _open_files),
        _gauge("process_max_fds", "File descriptors that may be open.", _most_files),
    ]


def _gauge(name: str, about: str, measure: Callable[[], float | None]) -> Gauge:
    def read() -> dict[Labels, float]:
        with suppress(OSError):
            if (value := measure()) is not None:
                return {(): value}
        return {}

    return Gauge(name, about, read=read)


@cache
def _started_at() -> float | None:
    # The name of the program stands in brackets before these fields, and may itself have any character in it.
    fields = (_PROC / "self" / "stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    for line in (_PROC / "stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return int(value) + since_boot
    return None


def _memory_bytes() -> tuple[float, float]:
    """Return the size of the address space, and how much of it is in memory."""
    size, resident, *_ = (_PROC / "self" / "statm").read_text().split()
    return float(int(size) * mmap.PAGESIZE), float(int(resident) * mmap.PAGESIZE)


def _open_files() -> float:
    return float(sum(1 for _ in (_PROC / "self" / "fd").iterdir()))


def _most_files() -> float | None:
    for line in (_PROC / "self" / "limits").read_text().splitlines():
        if line.startswith("Max open files"):
            most = line.split()[3]
            return float(most) if most.isdecimal() else None  # or it says "unlimited"
    return None


def _python() -> Gauge:
    major, minor, patch = platform.python_version_tuple()
    values = (platform.python_version(), platform.python_implementation(), major, minor, patch)
    labels = ("version", "implementation", "major", "minor", "patchlevel")
    return Gauge("python_info", "The Python that runs this process.", labels, lambda: {values: 1.0})


def _collector() -> list[Instrument]:
    stats = gc.get_stats()

    def counted(name: str, about: str, key: str) -> Counter:
        return Counter(
            name, about, _GENERATION, {(str(number),): float(stat[key]) for number, stat in enumerate(stats)}
        )

    return [
        counted("python_gc_objects_collected", "Objects that the garbage collector freed.", "collected"),
        counted(
            "python_gc_objects_uncollectable",
            "Objects that the garbage collector found and cannot free.",
            "uncollectable",
        ),
        counted("python_gc_collections", "Runs of the garbage collector.", "collections"),
    ]
