"""The verbs of the pause switch."""

from __future__ import annotations

from datetime import timedelta

from pulse.client.caller import Caller
from pulse.errors import InvalidArgument
from pulse.models.dispatch import DispatchStatus, dispatch_status
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


class DispatchVerbs:
    """What a `Pulse` can do with dispatch as a whole."""

    _caller: Caller

    async def pause(
        self, reason: str = "", topic: str | None = None, *, timeout: timedelta | None = None
    ) -> None:
        """Hand out no more jobs, of one topic or of all, until `resume`.

        Running jobs finish, enqueues go on, and schedules fire: their jobs wait. It holds on every
        replica of pulsed within about a second, and through restarts.
        """
        request = message(pb.PauseDispatchRequest, reason=reason, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.PauseDispatch, request, timeout)

    async def resume(self, topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Lift the pause of one topic, or of everything; topics that are paused by name stay so."""
        request = message(pb.ResumeDispatchRequest, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.ResumeDispatch, request, timeout)

    async def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return what is paused, since when and why."""
        request = pb.GetDispatchStatusRequest()
        return dispatch_status(await self._caller.call(lambda stub: stub.GetDispatchStatus, request, timeout))


def _topic(topic: str | None) -> str:
    # On the wire the empty topic is everything. Whoever computed a topic and got nothing did not mean that.
    if topic == "":
        raise InvalidArgument("topic is empty: name one, or leave it out to mean every topic.")
    return topic or ""
