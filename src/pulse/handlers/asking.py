"""Calls of handlers about their jobs, repeated until a server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pulse.errors import Unavailable
from pulse.outcomes import Cancelled

Answer = TypeVar("Answer")

# Between two tries of a call that no server answers. The job keeps its lease, or is stopped.
AGAIN_SECONDS = 1.0


async def until_answered(
    call: Callable[[], Awaitable[Answer]],
    job_id: str,
    is_cancelled: Callable[[], bool],
    is_completing: Callable[[], bool],
) -> Answer:
    """Call until a server answers. Raises Cancelled once the handler should stop.

    Raises Unavailable if no server answers after `ctx.complete`.
    """
    while True:
        if is_cancelled():
            raise Cancelled(f"Job {job_id} should stop.")
        try:
            return await call()
        except Unavailable as error:
            if is_completing():
                # The handler's own transaction may have locked the job: neither would ever end. ADR-0075
                raise Unavailable(
                    f"{error.message} From ctx.complete to the commit the job is locked, and stores no "
                    "step: call ctx.complete last."
                ) from None
            await asyncio.sleep(AGAIN_SECONDS)
