"""Waits for several jobs at once, over the one stream of their client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from pulse.client.handles import Handles, HandleSource, job_of
from pulse.errors import InvalidArgument, PulseError
from pulse.jobs.caller import seconds_of
from pulse.jobs.handles import Answer, JobHandle, source_of

R = TypeVar("R")


@overload
async def gather(
    *handles: JobHandle[R], timeout: timedelta | None = None, return_exceptions: Literal[False] = False
) -> list[R]: ...
@overload
async def gather(
    *handles: JobHandle[R], timeout: timedelta | None = None, return_exceptions: bool
) -> list[R | PulseError]: ...
async def gather(
    *handles: JobHandle[Any], timeout: timedelta | None = None, return_exceptions: bool = False
) -> list[Any]:
    """Wait for all jobs, and return their results in the order of the handles.

    The first job that does not complete raises its error (see `JobHandle.result`) and ends the
    wait. With `return_exceptions`, errors are returned in the place of results.
    """
    results: list[Any] = [None] * len(handles)
    async with contextlib.aclosing(_answers(handles, timeout)) as answers:
        async for at, answer in answers:
            try:
                source = _source(handles[at])
                results[at] = source.result_of(job_of(handles[at].id, answer))
            except PulseError as error:
                if not return_exceptions:
                    raise
                results[at] = error
    return results


async def as_completed(
    handles: Iterable[JobHandle[R]], *, timeout: timedelta | None = None
) -> AsyncGenerator[JobHandle[R], None]:
    """Yield the handles in the order in which their jobs finish, whatever the outcome.

    In the body of the loop, `await handle.result()` and `await handle.wait()` return at once. Raises
    ResultTimeout if not all finish in time.
    """
    given = tuple(handles)
    async with contextlib.aclosing(_answers(given, timeout)) as answers:
        async for at, answer in answers:
            handle = given[at]
            at_hand = _source(handle).awaiting().answered
            at_hand[handle.id] = answer
            try:
                yield handle
            finally:
                at_hand.pop(handle.id, None)


class GatherVerbs:
    """How a `Pulse` waits for jobs."""

    _handles: Handles

    def handle(self, job_id: str, topic: str = "") -> JobHandle[Any]:
        """Return the handle of a job that was stored before, to wait for it. Makes no call.

        With its `topic`, if this client has the handler, the result is decoded in the type that it returns.
        """
        return self._handles.made(job_id, topic)

    async def gather(
        self, *handles: JobHandle[R], timeout: timedelta | None = None, return_exceptions: bool = False
    ) -> list[R]:
        """Wait for all jobs, and return their results in the order of the handles. See `pulse.gather`."""
        return await gather(*handles, timeout=timeout, return_exceptions=return_exceptions)  # type: ignore[return-value]

    def as_completed(
        self, handles: Iterable[JobHandle[R]], *, timeout: timedelta | None = None
    ) -> AsyncGenerator[JobHandle[R], None]:
        """Yield the handles in the order in which their jobs finish. See `pulse.as_completed`."""
        return as_completed(handles, timeout=timeout)


async def _answers(
    handles: Sequence[JobHandle[Any]], timeout: timedelta | None
) -> AsyncGenerator[tuple[int, Answer], None]:
    """Yield the positions of the handles and their answers as they come."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + seconds_of("timeout", timeout)
    sources = [_source(handle) for handle in handles]
    finished: asyncio.Queue[int] = asyncio.Queue()
    waits: list[asyncio.Future[Answer]] = []
    awaiting = [source.awaiting() for source in sources]
    try:
        for at, (handle, source) in enumerate(zip(handles, sources, strict=True)):
            source.warn_in_handler(handle.topic)
            wait = source.begin(awaiting[at], handle.id)
            wait.add_done_callback(lambda _, at=at: finished.put_nowait(at))  # type: ignore[misc]
            waits.append(wait)
        for left in range(len(handles), 0, -1):
            try:
                async with asyncio.timeout_at(deadline):
                    at = await finished.get()
            except TimeoutError:
                first = next(at for at, wait in enumerate(waits) if not wait.done())
                raise await sources[first].timed_out(
                    f"{left} of {len(handles)} jobs have not finished after {timeout}.",
                    handles[first],
                    "They go on.",
                ) from None
            yield at, waits[at].result()
    finally:
        for handle, own, wait in zip(handles, awaiting, waits, strict=False):
            own.end(handle.id, wait)


def _source(handle: JobHandle[Any]) -> HandleSource:
    if not isinstance(handle, JobHandle):
        raise InvalidArgument(f"Give the handles of jobs, as `enqueue` returns them, not {handle!r}.")
    source = source_of(handle)
    if not isinstance(source, HandleSource):
        raise InvalidArgument("These handles come from a SyncPulse: use its own p.gather and p.as_completed.")
    return source
