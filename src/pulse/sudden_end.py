"""Ends the process at once, without what an interpreter does at its exit."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


def end_at_once(code: int) -> NoReturn:
    """End the process, and with it the children that multiprocessing has started in it.

    At an ordinary exit the interpreter waits for them. After this one they would wait for work for ever.
    """
    with contextlib.suppress(Exception):
        for child in children():
            child.kill()
    os._exit(code)


def children() -> list[BaseProcess]:
    """Return the running children that multiprocessing has started: those of process pools, too."""
    multiprocessing = sys.modules.get("multiprocessing")
    return [] if multiprocessing is None else multiprocessing.active_children()
