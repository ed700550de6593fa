"""The RPCs of dispatch: pause and resume it, or single workers."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import fitting
from pulse_server.base.loops import each_in_turns
from pulse_server.dispatch.rules import WORKER_STATES, Pause
from pulse_server.dispatch.service import Dispatch
from pulse_server.doors import boundary
from pulse_server.doors.callers import Callers

# The size of a paused topic in a response, without its texts.
_PAUSE_BYTES = 40
_CANNOT_STOP = (
    "The client of this worker cannot be stopped from here: the worker is quiet instead. "
    "Send its process a SIGTERM on its host."
)


class DispatchRpcs:
    def __init__(self, dispatch: Dispatch, callers: Callers) -> None:
        self._dispatch = dispatch
        self._callers = callers

    async def pause_dispatch(
        self, request: pb.PauseDispatchRequest, context: Any
    ) -> pb.PauseDispatchResponse:
        reason, by = bounds.clean_error(request.reason), self._callers.of(context).user
        await self._dispatch.pause(_topic(request.topic), reason, by)
        return pb.PauseDispatchResponse()

    async def resume_dispatch(
        self, request: pb.ResumeDispatchRequest, _context: Any
    ) -> pb.ResumeDispatchResponse:
        await self._dispatch.resume(_topic(request.topic))
        return pb.ResumeDispatchResponse()

    async def set_worker_state(
        self, request: pb.SetWorkerStateRequest, context: Any
    ) -> pb.SetWorkerStateResponse:
        worker_id = bounds.check_worker_id(request.worker_id)
        if request.state not in WORKER_STATES:
            raise InvalidArgument("state", f"has to be one of {', '.join(WORKER_STATES)}.")
        reason, by = bounds.clean_error(request.reason), self._callers.of(context).user
        is_obeyed = await self._dispatch.set_worker_state(worker_id, request.state, reason, by)
        return pb.SetWorkerStateResponse(note="" if is_obeyed else _CANNOT_STOP)

    async def get_dispatch_status(
        self, _request: pb.GetDispatchStatusRequest, _context: Any
    ) -> pb.GetDispatchStatusResponse:
        state = await self._dispatch.status()
        everything = state.everything
        paused = list(state.topics.items())
        count = fitting(map(_weight, paused))
        return pb.GetDispatchStatusResponse(
            paused=everything is not None,
            reason=everything.reason if everything else "",
            paused_at=boundary.timestamp(everything.since if everything else None),
            paused_by=everything.by if everything else "",
            topics=await each_in_turns(_paused_topic, paused[:count]),
            topics_left_out=len(paused) - count,
        )


def _paused_topic(entry: tuple[str, Pause]) -> pb.PausedTopic:
    topic, pause = entry
    return pb.PausedTopic(
        topic=topic, reason=pause.reason, paused_at=boundary.timestamp(pause.since), paused_by=pause.by
    )


def _weight(entry: tuple[str, Pause]) -> int:
    """Return about how many bytes the topic adds to a response."""
    topic, pause = entry
    return len(topic) + len(pause.reason.encode()) + len(pause.by.encode()) + _PAUSE_BYTES


def _topic(name: str) -> str | None:
    return bounds.check_topic(name) if name else None
