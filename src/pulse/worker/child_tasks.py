"""Tasks that handlers start: one that exits fails its job, as the handler itself would, and not the worker.

asyncio passes the SystemExit and the KeyboardInterrupt of a task on to the caller of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

from pulse.handlers.context import running_context
from pulse.worker.signals import interrupts_main_thread


class TaskExited(BaseException):
    """A task of a handler called `sys.exit()` or raised KeyboardInterrupt. The cause is what it raised."""


@contextlib.contextmanager
def exits_contained() -> Iterator[None]:
    """Have the tasks of handlers raise TaskExited where they await them, in the running event loop."""
    loop = asyncio.get_running_loop()
    given: Any = loop.get_task_factory()

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if running_context() is not None and asyncio.iscoroutine(coroutine):
            coroutine = _Contained(coroutine)
        if given is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return given(loop, coroutine, **options)

    loop.set_task_factory(make_task)
    try:
        yield
    finally:
        if loop.get_task_factory() is make_task:
            loop.set_task_factory(given)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine whose exits are errors that asyncio keeps in its task.

    Not an `async def` around it: a task that is canceled before its first step would never have awaited it.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            _check_own(error)
            raise TaskExited(f"A task of the handler raised {error!r}.") from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as exited:
            _check_own(exited)
            raise TaskExited(f"A task of the handler raised {exited!r}.") from exited

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # its name, code and frame, for stacks


def _check_own(error: BaseException) -> None:
    """Raise the error if it is that of a user who has pressed Ctrl-C, where the signal has no handler."""
    if isinstance(error, KeyboardInterrupt) and interrupts_main_thread():
        raise error
