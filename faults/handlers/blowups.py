"""Handlers that leak, and errors that are hard to report."""

from __future__ import annotations

import threading

from faults.handlers.kinds import kind
from pulse import JobStatus

DEAD, COMPLETED = JobStatus.DEAD_LETTERED, JobStatus.COMPLETED
_leaked: list[bytes] = []
_LEAK_BYTES = 15 << 20
_MEGABYTE = 1 << 20
_MANY = 5000


@kind("leak", COMPLETED, weight=1)
def leak() -> None:
    _leaked.append(b"x" * _LEAK_BYTES)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("not to be pickled")
        self.lock = threading.Lock()

    def __reduce__(self) -> str:
        raise TypeError("not to be pickled")


@kind("recursion", DEAD, errors="RecursionError")
def recursion() -> None:
    recursion()


@kind("recursion-async", DEAD, errors="RecursionError")
async def recursion_async() -> None:
    await recursion_async()


@kind("memory", DEAD, errors="MemoryError")
def memory() -> None:
    bytearray(1 << 62)


@kind("speechless", DEAD, errors="Speechless")
def speechless() -> None:
    raise Speechless


@kind("speechless-process", DEAD, errors="Speechless", process=True)
def speechless_process() -> None:
    raise Speechless


@kind("group", DEAD, errors="ExceptionGroup")
async def group() -> None:
    raise ExceptionGroup("many", [ValueError(str(number)) for number in range(_MANY)])


@kind("chain", DEAD, errors="ValueError")
def chain() -> None:
    error: Exception = ValueError("the first")
    for number in range(_MANY):
        try:
            raise ValueError(str(number)) from error
        except ValueError as raised:
            error = raised
    raise error


@kind("megabyte", DEAD, errors="ValueError")
def megabyte() -> None:
    raise ValueError("é\0\ud800" * (_MEGABYTE // 3))


@kind("megabyte-process", DEAD, errors="ValueError", process=True)
def megabyte_process() -> None:
    raise ValueError("é\0\ud800" * (_MEGABYTE // 3))


@kind("unpicklable-process", DEAD, errors="Unpicklable", process=True)
def unpicklable_process() -> None:
    raise Unpicklable
