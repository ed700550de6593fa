"""The verbs for dispatch: pause and resume it."""

from __future__ import annotations

from datetime import timedelta

from pulse.client.caller import Caller
from pulse.errors import InvalidArgument
from pulse.models.dispatch import DispatchStatus, dispatch_status
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


class DispatchVerbs:
    """What a `Pulse` can do with dispatch."""

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

    async def resume(self, topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Resume one topic, or dispatch as a whole. Topics that were paused by name stay paused."""
        request = message(pb.ResumeDispatchRequest, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.ResumeDispatch, request, timeout)

    async def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return what is paused, since when and why."""
        request = pb.GetDispatchStatusRequest()
        return dispatch_status(await self._caller.call(lambda stub: stub.GetDispatchStatus, request, timeout))


def _topic(topic: str | None) -> str:
    # On the wire an empty topic means every topic. A caller that computed an empty one did not mean that.
    if topic == "":
        raise InvalidArgument("topic is empty: name one, or leave it out to mean every topic.")
    return topic or ""
