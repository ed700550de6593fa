"""Bounds calls that are costly for the database or this process, in total and per caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc

from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.boundary import Behavior
from pulse_server.transport.grpc.quotas import Quota
from pulse_server.transport.grpc.worker_ids import calling_user

# How long a call waits for a slot.
COSTLY_CALL_TURN = timedelta(seconds=3)
# The offset from which a list counts as a search.
OFFSET_FOR_FREE = 1000

_BUSY = "Too many calls of this kind are in progress. Try again in a moment."


class CostlyCalls:
    def __init__(self, most: int) -> None:
        self._quota = Quota(most, turn=COSTLY_CALL_TURN, busy=_BUSY)
        self._in_progress: set[asyncio.Task[Any]] = set()

    def limited(
        self, behavior: Behavior, is_costly: Callable[[Any], bool] = lambda _request: True
    ) -> Behavior:
        """Return the behavior; its costly calls wait for a slot. ResourceExhausted if that takes too long."""

        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            if not is_costly(request):
                return await behavior(request, context)
            caller = calling_user() or peer_address(context.peer())
            await self._quota.enter(caller)
            # A caller that disconnects does not end its statement in the database. The slot is taken until
            # the statement is done.
            answering = asyncio.ensure_future(behavior(request, context))
            self._in_progress.add(answering)
            answering.add_done_callback(lambda done: self._release_slot(done, caller))
            try:
                return await asyncio.shield(answering)
            finally:
                del answering  # its error keeps this frame

        return call

    def _release_slot(self, answering: asyncio.Task[Any], caller: str) -> None:
        self._in_progress.discard(answering)
        self._quota.leave(caller)
        if not answering.cancelled():
            answering.exception()  # retrieved, since the caller may have disconnected


def searches(request: Any) -> bool:
    """Whether the filter reads the jobs themselves: no index covers their errors and metadata."""
    wanted = getattr(request, "filter", request)
    return bool(wanted.error_contains or wanted.metadata)


def searches_or_skips(request: Any) -> bool:
    """Whether the list reads the jobs themselves, or skips many."""
    return searches(request) or request.offset > OFFSET_FOR_FREE
