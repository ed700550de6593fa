"""Runs a coroutine in its own contextvars, inside a task that has others."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

# A coroutine that waits, and what it waits for.
Begun = tuple[Coroutine[Any, Any, Any], Any]


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Await anything. Makes a coroutine of an awaitable that is not one."""
    return await awaitable


@types.coroutine
def rest_of(begun: Begun, run_in: contextvars.Context) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine, each step in these contextvars. Returns its result.

    The coroutine sees the awaiting task as its own: what it awaits, its cancellation and
    `asyncio.current_task()` are those of the task. Only the contextvars differ.
    """
    coroutine, waits_for = begun
    error: BaseException | None
    try:
        while True:
            result = error = None
            try:
                result = yield waits_for
            except BaseException as raised:
                error = raised
            # Not within the `except`: the coroutine would see this error as being handled.
            if error is None:
                waits_for = run_in.run(coroutine.send, result)
            else:
                waits_for = run_in.run(coroutine.throw, error)
    except StopIteration as ended:
        return ended.value
    finally:
        del error  # its traceback refers to this frame
