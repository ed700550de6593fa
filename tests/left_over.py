"""Finds cyclic garbage: objects that only the collector can free."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_over() -> Iterator[list[str]]:
    """Disable the collector for the length of the block; then the list has the types of what it would free.

    Code under test must leave nothing large, and little: the collector counts objects, not bytes, and frees
    those that survived its first run only after hundreds of thousands of others.
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
