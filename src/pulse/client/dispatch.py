"""The verbs for dispatch: pause and resume it, or single workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pulse.client.caller import Caller
from pulse.errors import InvalidArgument
from pulse.messages import Reader, message
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class TopicPause:
    """A pause of one topic."""

    reason: str
    paused_at: datetime | None
    paused_by: str = ""
    """The user; empty if the server requires none."""


@dataclass(frozen=True, slots=True)
class DispatchStatus:
    """The pauses of dispatch and of topics. Times are aware and in UTC."""

    paused: bool
    """True while dispatch as a whole is paused."""
    reason: str
    """The reason given for the pause of dispatch as a whole; otherwise empty."""
    paused_at: datetime | None
    topics: Mapping[str, TopicPause]
    """The topics that are paused by name."""
    paused_by: str = ""
    """The user who paused dispatch as a whole; empty if the server requires none."""
    topics_left_out: int = 0
    """The number of paused topics that did not fit the response."""

    def is_paused(self, topic: str) -> bool:
        """True while this topic is paused, by name or with all others.

        It may be False for a paused topic while there are `topics_left_out`.
        """
        return self.paused or topic in self.topics


_topic_pause = Reader(TopicPause)
dispatch_status = Reader(
    DispatchStatus,
    topics=lambda response: {paused.topic: _topic_pause(paused) for paused in response.topics},
)
"""Returns the state in a `GetDispatchStatusResponse`."""


class DispatchVerbs:
    """The verbs of a `Pulse` for dispatch."""

    _caller: Caller

    async def pause(
        self, *, reason: str = "", topic: str | None = None, timeout: timedelta | None = None
    ) -> None:
        """Pause dispatch, of one topic or of all, until `resume`.

        Running jobs finish. Jobs can still be enqueued and schedules still fire; these jobs wait. The pause
        takes effect on every replica of pulsed within about a second, and survives restarts.
        """
        request = message(pb.PauseDispatchRequest, reason=reason, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.PauseDispatch, request, timeout)

    async def resume(
        self, topic: str | None = None, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Resume one topic, or dispatch as a whole. Topics that were paused by name stay paused."""
        request = message(pb.ResumeDispatchRequest, topic=_topic(topic), reason=reason)
        await self._caller.call(lambda stub: stub.ResumeDispatch, request, timeout)

    async def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return all pauses, with their times and reasons."""
        request = pb.GetDispatchStatusRequest()
        return dispatch_status(await self._caller.call(lambda stub: stub.GetDispatchStatus, request, timeout))

    async def quiet_worker(
        self, worker_id: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Let a connected worker take no further jobs, until `resume_worker` or the end of its process.

        It finishes the jobs that it has started, releases the others without costing an attempt, and
        stays connected. Takes effect within about a second, at whichever server it is connected.
        Raises NotFound if it is not connected.
        """
        await self._set_worker_state(worker_id, "quiet", reason, timeout)

    async def resume_worker(
        self, worker_id: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Let a quiet worker take jobs again. Raises NotFound if it is not connected, and was not quiet."""
        await self._set_worker_state(worker_id, "running", reason, timeout)

    async def stop_worker(
        self, worker_id: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> str | None:
        """End a connected worker as SIGTERM would: it drains, and `run()` returns.

        A supervisor may start it again. Returns None, or a sentence if its client is too old to be
        stopped: then it is quiet. Raises NotFound if it is not connected.
        """
        return await self._set_worker_state(worker_id, "stopping", reason, timeout) or None

    async def _set_worker_state(
        self, worker_id: str, state: str, reason: str, timeout: timedelta | None
    ) -> str:
        request = message(pb.SetWorkerStateRequest, worker_id=worker_id, state=state, reason=reason)
        return (await self._caller.call(lambda stub: stub.SetWorkerState, request, timeout)).note


def _topic(topic: str | None) -> str:
    # On the wire an empty topic means every topic. A caller that computed an empty one did not mean that.
    if topic == "":
        raise InvalidArgument("topic is empty: name one, or leave it out to mean every topic.")
    return topic or ""
