"""Schedules on their way to the server: what is sent, and when it may be sent again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from pulse import payload as payloads
from pulse.client.caller import Caller
from pulse.errors import InvalidArgument
from pulse.models.schedules import CatchUp, ScheduleInfo, schedule_info
from pulse.models.specs import Spec, spec_fields
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


def make_definition(
    topic: str,
    args: object,
    spec: Spec,
    *,
    name: str | None,
    priority: int,
    max_attempts: int | None,
    metadata: Mapping[str, str] | None,
    catch_up: CatchUp,
    replace: bool,
    strict: bool = False,
) -> pb.CreateScheduleRequest:
    """Return the schedule as it will be sent. Raises InvalidArgument for what cannot be said on the wire."""
    if not isinstance(topic, str) or not topic:
        raise InvalidArgument(f"A schedule needs the topic of its jobs, such as 'send-email', not {topic!r}.")
    if name == "":
        raise InvalidArgument("name is empty: give the schedule a name, or leave it out.")
    if replace and name is None:
        raise InvalidArgument("replace needs a name: it says which schedule to retune.")
    return message(
        pb.CreateScheduleRequest,
        topic=topic,
        payload=payloads.encode(args),
        name=name,
        priority=priority,
        max_attempts=max_attempts,
        metadata=metadata,
        catch_up=catch_up,
        replace=replace,
        strict=strict,
        **spec_fields(spec),
    )


async def create_schedule(
    caller: Caller, definition: pb.CreateScheduleRequest, timeout: timedelta | None
) -> ScheduleInfo:
    """Store the schedule. A lost answer is only asked for again where that cannot make a second one."""
    response = await caller.call(
        lambda stub: stub.CreateSchedule, definition, timeout, repeatable=_is_repeatable(definition)
    )
    return schedule_info(response.schedule)


def _is_repeatable(definition: pb.CreateScheduleRequest) -> bool:
    # Only a name tells the server that it has this schedule already; and one that fires once may have fired
    # by the time of the repeat, and be gone together with its name.
    return bool(definition.name) and not definition.HasField("at")
