"""Runs a module with a skewed wall clock: `python -m faults.skewed_clock SECONDS MODULE …`.

The wall clock is shifted inside the process, before anything else is imported: time.time() and its variants,
and datetime.now(). Monotonic clocks are not changed, as on a real host. Compiled code is not affected.

So gRPC is left alone: it makes deadlines of time.time(), and its core compares them with the clock of the
machine. On a host whose clock is wrong the two are the same.
"""

import datetime
import importlib
import os
import runpy
import sys
import time
from types import ModuleType
from typing import Any

_NANOSECONDS = 1_000_000_000
_MODULES_WITH_DEADLINES = ("_cython.cygrpc", "_channel", "_common", "_server", "_utilities", "aio._utils")


def shift(seconds: float) -> None:
    """Set the wall clock of this process ahead by this much, or back if it is negative."""
    _leave_grpc_alone()
    _shift_time(seconds)
    _shift_datetime(datetime.timedelta(seconds=seconds))


def _leave_grpc_alone() -> None:
    # Read when gRPC is first imported, which is now; pulsed and the SDK set it before they import it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    right = ModuleType("time")
    vars(right).update(vars(time))
    for name in _MODULES_WITH_DEADLINES:
        vars(importlib.import_module(f"grpc.{name}"))["time"] = right


def _shift_time(seconds: float) -> None:
    real = {name: getattr(time, name) for name in ("time", "time_ns", "clock_gettime", "clock_gettime_ns")}
    nanoseconds = round(seconds * _NANOSECONDS)

    def clock_gettime(clock: int) -> float:
        moment: float = real["clock_gettime"](clock)
        return moment + seconds if clock == time.CLOCK_REALTIME else moment

    def clock_gettime_ns(clock: int) -> int:
        moment: int = real["clock_gettime_ns"](clock)
        return moment + nanoseconds if clock == time.CLOCK_REALTIME else moment

    shifted = {
        "time": lambda: real["time"]() + seconds,
        "time_ns": lambda: real["time_ns"]() + nanoseconds,
        "clock_gettime": clock_gettime,
        "clock_gettime_ns": clock_gettime_ns,
    }
    for name, function in shifted.items():
        setattr(time, name, function)


def _shift_datetime(ahead: datetime.timedelta) -> None:
    real = datetime.datetime

    class SameKind(type(real)):  # type: ignore[misc]
        """Every datetime is an instance of the shifted class: drivers and parsers make them in C."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

    class Shifted(real, metaclass=SameKind):  # type: ignore[misc, valid-type]
        __slots__ = ()  # compiled modules expect this size

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real.now(tz) + ahead

        @classmethod
        def today(cls) -> datetime.datetime:
            return real.today() + ahead

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return real.utcnow() + ahead

    datetime.datetime = Shifted  # type: ignore[misc]


def main() -> None:
    """Shift the clock, then become the module."""
    seconds, module, *arguments = sys.argv[1:]
    shift(float(seconds))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
