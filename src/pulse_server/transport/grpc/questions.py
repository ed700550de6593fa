"""Questions that cost the database or this process much: a few at a time, and fewer of one caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from pulse_server import tuning
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.boundary import Behaviour
from pulse_server.transport.grpc.quotas import Quota
from pulse_server.transport.grpc.worker_ids import calling_user

_BUSY = "The server answers as many questions of this kind as it takes at a time. Try again in a moment."


class Questions:
    def __init__(self, most: int) -> None:
        self._quota = Quota(most, turn=tuning.QUESTION_TURN, busy=_BUSY)
        self._under_way: set[asyncio.Task[Any]] = set()

    def costly(
        self, behaviour: Behaviour, is_costly: Callable[[Any], bool] = lambda _request: True
    ) -> Behaviour:
        """The behaviour, whose costly calls wait for each other. ResourceExhausted if that takes long."""

        async def ask(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            if not is_costly(request):
                return await behaviour(request, context)
            caller = calling_user() or peer_address(context.peer())
            await self._quota.enter(caller)
            # A caller that leaves does not end what it asked for: the database goes on with the statement,
            # and the next question waits for it.
            answering = asyncio.ensure_future(behaviour(request, context))
            self._under_way.add(answering)
            answering.add_done_callback(lambda done: self._is_answered(done, caller))
            try:
                return await asyncio.shield(answering)
            finally:
                del answering  # its error has this frame

        return ask

    def _is_answered(self, answering: asyncio.Task[Any], caller: str) -> None:
        self._under_way.discard(answering)
        self._quota.leave(caller)
        if not answering.cancelled():
            answering.exception()  # which its caller may not have waited for


def searches(request: Any) -> bool:
    """Whether a filter has to look into the jobs themselves: no index knows what is in them."""
    wanted = getattr(request, "filter", request)
    return bool(wanted.error_contains or wanted.metadata)


def searches_or_skips(request: Any) -> bool:
    """Whether a list has to look into the jobs, or to walk past many."""
    return searches(request) or request.offset > tuning.OFFSET_FOR_FREE
