"""What code leaves behind that only the collector can free: rings of objects that keep each other."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_over() -> Iterator[list[str]]:
    """Hold the collector back for the length of the block; then the list has the types of what it would free.

    Code under test must leave nothing large, nor much: the collector counts objects, not bytes, and comes for
    those that survived its first look after hundreds of thousands of others.
    """
    types: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield types
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        types += [type(found).__name__ for found in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
