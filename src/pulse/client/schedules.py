"""The verbs for schedules: create and declare them. `p.schedules` manages them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from pulse.client.schedule_declarations import Declaration, Declarations
from pulse.client.schedule_definitions import (
    create_schedule,
    declared_definition,
    make_definition,
    with_defaults,
)
from pulse.client.stored_schedules import Schedules
from pulse.enqueues import Handles
from pulse.handlers.registry import Registry
from pulse.jobs.caller import Caller
from pulse.jobs.submissions import takes_options
from pulse.messages import message
from pulse.models.schedules import ScheduleInfo
from pulse.models.specs import Cron, Every, Spec
from pulse.schedule_definitions import ScheduleOptions
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class ScheduleVerbs:
    """The verbs of a `Pulse` that create schedules."""

    _caller: Caller
    _handles: Handles
    _declarations: Declarations
    _registry: Registry

    @property
    def schedules(self) -> Schedules:
        """The verbs for stored schedules: list, update, pause, fire and delete them."""
        return Schedules(self._caller, lambda job_id, topic: self._handles.made(job_id, topic))

    @takes_options(ScheduleOptions)
    async def schedule(
        self,
        topic: str,
        args: object,
        spec: Spec,
        *,
        replace: bool = False,
        strict: bool = False,
        reason: str = "",
        timeout: timedelta | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Store a schedule that enqueues a job on the topic, with these arguments, at the times of `spec`.

        A name makes the call repeatable: the same definition returns the same schedule; another one raises
        AlreadyExists, or updates the schedule if `replace` is true. Without a name each call creates a
        schedule. Such a call is not retried after a lost answer: it raises Unavailable, and
        `schedules.list` shows whether the schedule exists. The same holds for `At` and `After`:
        their schedule is deleted once it has fired. `catch_up` is the policy for occurrences that
        were missed while no server ran. A job that has not started within `start_within` after its
        occurrence is canceled, even if the occurrence fires later than that. `overlap` is the
        policy for an occurrence while a job of the schedule is unfinished. `strict` refuses an `At`
        in the past, which otherwise fires at once.
        """
        definition = make_definition(topic, args, spec, options, replace=replace, strict=strict)
        definition.MergeFrom(message(pb.CreateScheduleRequest, reason=reason))
        with_defaults(definition, self._registry, has_priority=options.get("priority") is not None)
        return await create_schedule(self._caller, definition, timeout)

    # ------------------------------------------------------------ declarations

    @takes_options(ScheduleOptions)
    def every(
        self,
        topic: str,
        interval: timedelta,
        args: object = None,
        **options: Unpack[ScheduleOptions],
    ) -> Declaration:
        """Declare that a job is enqueued on the topic at every interval. Sends nothing yet.

        `run()` creates the schedule when it starts. `declare()` and awaiting the returned
        Declaration create it too. The name defaults to the topic. A restart of the application
        therefore finds the schedule again, and updates it if the code has changed. An invalid
        interval, cron expression or time zone raises InvalidArgument here.
        """
        definition = declared_definition(topic, args, Every(interval), options)
        return self._declare(definition, has_priority=options.get("priority") is not None)

    @takes_options(ScheduleOptions)
    def cron(
        self,
        topic: str,
        expression: str,
        args: object = None,
        *,
        tz: str | ZoneInfo = "UTC",
        **options: Unpack[ScheduleOptions],
    ) -> Declaration:
        """Declare that a job is enqueued on the topic at the times of a cron expression. See `every`."""
        definition = declared_definition(topic, args, Cron(expression, tz), options)
        return self._declare(definition, has_priority=options.get("priority") is not None)

    async def declare(self, *, timeout: timedelta | None = None) -> list[ScheduleInfo]:
        """Create or update all declared schedules, and return them. `timeout` bounds each schedule.

        For programs that declare schedules and do not `run()`.
        """
        declared = [await declaration.declare(timeout=timeout) for declaration in self._declarations]
        await self._declarations.report_through(self._caller, timeout)
        return declared

    def _declare(self, definition: pb.CreateScheduleRequest, *, has_priority: bool) -> Declaration:
        declaration = Declaration(self._caller, definition, self._registry, has_priority=has_priority)
        return self._declarations.add(declaration)
