"""Steps a coroutine in contextvars of its own, inside a task that has others."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

# A coroutine that has begun and is not done, and what it waits for.
Steps = tuple[Coroutine[Any, Any, Any], Any]


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Return what the awaitable comes to: a coroutine for what is not one."""
    return await awaitable


@types.coroutine
def remaining_steps(steps: Steps, run_in: contextvars.Context) -> Generator[Any, Any, None]:
    """Await the rest of a coroutine, each step in these contextvars.

    To the coroutine it is as if the awaiting task were its own: what it awaits, its cancellation and
    `asyncio.current_task()` are the task's. Only contextvars, and what is made from them, are apart.
    """
    coroutine, waits_for = steps
    error: BaseException | None
    try:
        while True:
            result = error = None
            try:
                result = yield waits_for
            except BaseException as raised:
                error = raised
            # Not within the `except`: the coroutine would take this error for one that is being handled.
            if error is None:
                waits_for = run_in.run(coroutine.send, result)
            else:
                waits_for = run_in.run(coroutine.throw, error)
    except StopIteration:
        return
    finally:
        del error  # it holds this frame by its traceback
