"""UUIDv7 from the standard library: job ids that sort by the time they were made."""

from __future__ import annotations

import os
import threading
import time
from random import getrandbits

_COUNTER_BITS = 74  # everything that is neither time, version nor variant
_LOW_BITS = (1 << 62) - 1
_VERSION_AND_VARIANT = 0x7 << 76 | 0x2 << 62

_lock = threading.Lock()
_milliseconds = 0
_counter = 0


def uuid7() -> str:
    """Return a new UUIDv7 that sorts after every other one made in this process.

    Within one millisecond the random part is counted up by random steps; a clock that was set back is
    ignored until it has caught up.
    """
    global _milliseconds, _counter
    now = time.time_ns() // 1_000_000
    with _lock:
        if now > _milliseconds:
            _milliseconds = now
            # The top bit stays free, so that counting up never runs over within the millisecond.
            _counter = int.from_bytes(os.urandom(10), "big") >> 7
        else:
            _counter += 1 + getrandbits(32)
            if _counter >> _COUNTER_BITS:
                _milliseconds += 1
                _counter = getrandbits(_COUNTER_BITS - 1)
        value = _milliseconds << 80 | _counter >> 62 << 64 | _counter & _LOW_BITS | _VERSION_AND_VARIANT
    digits = value.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _forget_counter() -> None:
    # Without this a forked child would count on from its parent's number within the same millisecond.
    global _lock, _counter
    _lock = threading.Lock()
    _counter = int.from_bytes(os.urandom(10), "big") >> 7


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_counter)
