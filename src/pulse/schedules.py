"""The verbs for schedules: create and declare them. `p.schedules` manages those that are stored.

An application declares schedules in its code, next to its handlers.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

import grpc.aio

from pulse import payload as payloads
from pulse import tuning
from pulse.enqueues import Handles
from pulse.errors import (
    ClientClosed,
    InternalError,
    InvalidArgument,
    NotFound,
    PulseError,
    ResourceExhausted,
    Unavailable,
)
from pulse.handlers.registry import Registry
from pulse.ids import uuid7
from pulse.jobs.caller import Caller
from pulse.jobs.handles import JobHandle
from pulse.jobs.models import Page, job_page
from pulse.jobs.selections import not_empty
from pulse.jobs.submissions import takes_options
from pulse.messages import check_duration, message
from pulse.schedule_definitions import (
    CatchUp,
    Cron,
    Every,
    FirePage,
    Overlap,
    ScheduleInfo,
    ScheduleOptions,
    SchedulePage,
    SchedulerStatus,
    Spec,
    check_overlap,
    create_schedule,
    declared_definition,
    fire_page,
    make_definition,
    require_overlap,
    schedule_info,
    schedule_page,
    scheduler_status,
    spec_fields,
    with_defaults,
    zone_name,
)
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_ID = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
PREVIEWED = 5
_LARGEST_PAGE = 1_000


class _Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = _Unchanged()
"""The default of `update`'s `args`: None is a value there."""


class Schedules:
    """Manages schedules. Each is given by its id, by its name, or as a ScheduleInfo.

    A string in the form of a UUID is an id. A name costs one more call, to look up the id.
    """

    def __init__(self, caller: Caller, handle: Callable[[str, str], JobHandle]) -> None:
        """`handle` makes the handle of a job from its id and topic."""
        self._caller = caller
        self._handle = handle

    async def get(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> ScheduleInfo:
        """Return a schedule with its arguments. Raises NotFound."""
        request = message(pb.GetScheduleRequest, **_reference(schedule))
        response = await self._caller.call(lambda stub: stub.GetSchedule, request, timeout)
        return schedule_info(response.schedule)

    async def list(
        self,
        *,
        topic: str | None = None,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> SchedulePage:
        """Return one page of schedules, oldest first, without their arguments.

        `topic` selects schedules whose jobs have this topic.
        """
        request = message(
            pb.ListSchedulesRequest, topic=not_empty("topic", topic), limit=limit, page_token=cursor
        )
        response = await self._caller.call(lambda stub: stub.ListSchedules, request, timeout)
        return schedule_page(response)

    async def iter(
        self, *, page_size: int = tuning.PAGE_SIZE, timeout: timedelta | None = None
    ) -> AsyncIterator[ScheduleInfo]:
        """Yield all schedules, oldest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=page_size, cursor=cursor, timeout=timeout)
            for schedule in page:
                yield schedule
            cursor = page.next_cursor
            if cursor is None:
                return

    async def update(
        self,
        schedule: str | ScheduleInfo,
        *,
        spec: Spec | None = None,
        tz: str | ZoneInfo | None = None,
        args: object = UNCHANGED,
        topic: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp | None = None,
        start_within: timedelta | None = None,
        overlap: Overlap | None = None,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Change the given fields. Only future occurrences are affected.

        The kind cannot change: an interval cannot become a cron. A new spec counts from now. A `Cron` without
        a zone keeps the zone of the schedule; `tz` alone moves its expression to another zone. A
        `start_within` of zero removes the limit.

        If code declares the schedule, what is set here stays until `reset`, whatever code declares.
        """
        timetable = {} if spec is None else spec_fields(spec)
        if isinstance(spec, Cron) and not spec.names_zone:
            del timetable["time_zone"]
        if tz is not None:
            if "time_zone" in timetable:
                raise InvalidArgument("The spec names a time zone, and so does tz: name it once.")
            timetable["time_zone"] = zone_name(tz)
        if start_within is not None:
            check_duration("start_within", start_within, may_be_zero=True)
        if overlap is not None:
            check_overlap(overlap)
        request = message(
            pb.UpdateScheduleRequest,
            schedule_id=await self._id_of(schedule, timeout),
            payload=None if args is UNCHANGED else payloads.encode(args),
            topic=topic,
            priority=priority,
            max_attempts=max_attempts,
            metadata=None if metadata is None else message(pb.Metadata, entries=metadata),
            catch_up=catch_up,
            start_within=start_within,
            overlap=overlap,
            reason=reason,
            **timetable,
        )
        response = await self._caller.call(lambda stub: stub.UpdateSchedule, request, timeout)
        require_overlap(response.schedule, request.overlap)
        return schedule_info(response.schedule)

    async def reset(
        self,
        schedule: str | ScheduleInfo,
        *entries: str,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Hand entries back to the code that declares the schedule. Returns it with what the code declares.

        The names of the entries are those of `ScheduleOverride`. Without any, all entries that
        operators have set are handed back.
        """
        known = await self.get(schedule, timeout=timeout)
        names = entries or [override.entry for override in known.overrides]
        if not names:
            return known
        request = message(pb.UpdateScheduleRequest, schedule_id=known.id, returned=names, reason=reason)
        response = await self._caller.call(lambda stub: stub.UpdateSchedule, request, timeout)
        return schedule_info(response.schedule)

    async def pause(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Pause the schedule until `resume`."""
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.PauseScheduleRequest, schedule_id=schedule_id, reason=reason)
        await self._caller.call(lambda stub: stub.PauseSchedule, request, timeout)

    async def resume(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Resume the schedule with its next occurrence.

        Occurrences that it missed while paused are skipped. A schedule that fires once fires now.
        """
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.ResumeScheduleRequest, schedule_id=schedule_id, reason=reason)
        await self._caller.call(lambda stub: stub.ResumeSchedule, request, timeout)

    async def delete(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Delete the schedule. Its jobs stay; `jobs` and `fires` still list them by its id.

        Code that declares it makes it again when its next worker starts: `pause` lasts.
        """
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.DeleteScheduleRequest, schedule_id=schedule_id, reason=reason)
        await self._caller.call(lambda stub: stub.DeleteSchedule, request, timeout, repeatable=False)

    async def vanished(
        self, declared_by: str | None = None, *, timeout: timedelta | None = None
    ) -> builtins.list[ScheduleInfo]:
        """Return the schedules that an application once declared in code, and no longer declares.

        Without `declared_by`, returns schedules of all applications. `timeout` bounds each call to
        the server.
        """
        return [
            schedule
            async for schedule in self.iter(page_size=_LARGEST_PAGE, timeout=timeout)
            if schedule.vanished_at is not None and declared_by in (None, schedule.declared_by)
        ]

    async def prune(
        self, declared_by: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> builtins.list[ScheduleInfo]:
        """Delete the schedules that `vanished` returns for the application, and return them.

        Skips a schedule that was just declared again or deleted. `timeout` bounds each call to the
        server.
        """
        pruned = []
        for schedule in await self.vanished(declared_by, timeout=timeout):
            with contextlib.suppress(NotFound):
                if (await self.get(schedule, timeout=timeout)).vanished_at is None:
                    continue
                await self.delete(schedule, reason=reason, timeout=timeout)
                pruned.append(schedule)
        return pruned

    async def fire(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> JobHandle:
        """Enqueue the schedule's job now. Its next occurrence does not change.

        If an answer is lost, the call is repeated; the job is stored once.
        """
        known = await self.get(schedule, timeout=timeout)
        request = message(pb.FireScheduleRequest, schedule_id=known.id, job_id=uuid7(), reason=reason)
        response = await self._caller.call(lambda stub: stub.FireSchedule, request, timeout)
        return self._handle(response.job_id, known.topic)

    async def preview(
        self, spec: Spec, count: int = PREVIEWED, *, timeout: timedelta | None = None
    ) -> builtins.list[datetime]:
        """Return the next fire times of a schedule created now, in UTC. Stores nothing."""
        request = message(pb.PreviewScheduleRequest, count=count, **spec_fields(spec))
        response = await self._caller.call(lambda stub: stub.PreviewSchedule, request, timeout)
        return [fire.ToDatetime(tzinfo=UTC) for fire in response.fires]

    async def status(self, *, timeout: timedelta | None = None) -> SchedulerStatus:
        """Return the number of schedules, the next one to fire, and whether they fire on time."""
        request = pb.GetSchedulerStatusRequest()
        return scheduler_status(
            await self._caller.call(lambda stub: stub.GetSchedulerStatus, request, timeout)
        )

    # ------------------------------------------------------------ history

    async def jobs(
        self,
        schedule: str | ScheduleInfo,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> Page:
        """Return one page of the schedule's jobs, newest first. A deleted schedule is given by its id."""
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.ListScheduleJobsRequest, schedule_id=schedule_id, limit=limit, page_token=cursor)
        response = await self._caller.call(lambda stub: stub.ListScheduleJobs, request, timeout)
        return job_page(response)

    async def fires(
        self,
        schedule: str | ScheduleInfo,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> FirePage:
        """Return one page of the schedule's fires, newest first."""
        schedule_id = await self._id_of(schedule, timeout)
        request = message(
            pb.ListScheduleFiresRequest, schedule_id=schedule_id, limit=limit, page_token=cursor
        )
        response = await self._caller.call(lambda stub: stub.ListScheduleFires, request, timeout)
        return fire_page(response)

    async def _id_of(self, schedule: str | ScheduleInfo, timeout: timedelta | None) -> str:
        known = _reference(schedule).get("schedule_id")
        return known or (await self.get(schedule, timeout=timeout)).id


def _reference(schedule: str | ScheduleInfo) -> dict[str, str]:
    """Return the field of the request that identifies the schedule."""
    if isinstance(schedule, ScheduleInfo):
        return {"schedule_id": schedule.id}
    if not isinstance(schedule, str) or not schedule:
        raise InvalidArgument(f"Give the id or the name of a schedule, or a ScheduleInfo, not {schedule!r}.")
    return {"schedule_id" if re.fullmatch(_ID, schedule) else "name": schedule}


# ---------------------------------------------------------------- declarations

logger = logging.getLogger("pulse.worker")

# Errors that a later try may not meet. NotFound: the schedule was deleted while it was being updated.
# ResourceExhausted: too many logins at once, or no space in the database.
_TEMPORARY = (Unavailable, InternalError, NotFound, ResourceExhausted)
# The server's limit for one application.
_MOST_DECLARED = 1_000
# In one line of a log.
_MOST_NAMED = 20


class Declaration:
    """A schedule that `run()` creates when it starts, or `declare()`.

    `await p.every(…)` creates it at once and returns the ScheduleInfo. A repeat changes nothing.
    """

    def __init__(
        self,
        caller: Caller,
        definition: pb.CreateScheduleRequest,
        registry: Registry,
        *,
        has_priority: bool,
    ) -> None:
        self._caller = caller
        self._definition = definition
        self._registry = registry
        self._has_priority = has_priority
        if registry.get(definition.topic) is not None:
            self._complete()  # what its handler could not read is refused where it is declared

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self._definition.name

    @property
    def topic(self) -> str:
        """The topic of its jobs."""
        return self._definition.topic

    def __await__(self) -> Generator[Any, Any, ScheduleInfo]:
        return self.declare().__await__()

    async def declare(self, *, timeout: timedelta | None = None) -> ScheduleInfo:
        """Create the schedule, or update it if it exists and differs."""
        complete = self._complete()
        try:
            stored = await create_schedule(self._caller, complete, timeout)
        except PulseError as error:
            raise self._named(error) from None
        _warn_of_overrides(stored)
        return stored

    async def _try_through(self, connection: Connection) -> PulseError | None:
        """Declare once. Returns an error that a later try may not meet, and raises any other."""
        complete = self._complete()
        try:
            response = await connection.try_once(connection.stub.CreateSchedule, complete)
        except grpc.aio.AioRpcError as failed:
            error = self._named(connection.translate(failed))
            if isinstance(error, _TEMPORARY):
                return error
            raise error from None
        connection.unserved.warn(response.no_worker, own=tuple(self._registry))
        _warn_of_overrides(schedule_info(response.schedule))
        return None

    def _complete(self) -> pb.CreateScheduleRequest:
        # Only now: the handler may be registered after its schedule.
        complete = pb.CreateScheduleRequest()
        complete.CopyFrom(self._definition)
        try:
            return with_defaults(complete, self._registry, has_priority=self._has_priority)
        except PulseError as error:
            raise self._named(error) from None

    def _named(self, error: PulseError) -> PulseError:
        """Return the error with the name of the schedule, if it is about the schedule."""
        if isinstance(error, Unavailable | ClientClosed):
            return error
        return type(error)(f"The schedule {self.name!r} could not be declared: {error.message}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.topic!r}>"


def _warn_of_overrides(stored: ScheduleInfo) -> None:
    """Log the entries that do not apply as declared, because an operator has set them."""
    if (declares := stored.declares) is None:
        return
    names = [override.entry for override in stored.overrides]
    if differing := [name for name in names if stored.entry(name) != declares.entry(name)]:
        logger.warning(
            "An operator has set %s of the schedule %r, so what is declared for it does not apply. Hand it "
            "back with: pulse schedules reset %s",
            ", ".join(differing),
            stored.name,
            stored.name,
        )


class Declarations:
    """The schedules that one client declares, by name."""

    def __init__(self, application: str = "") -> None:
        """Without the name of an application, vanished schedules are not detected."""
        self.application = application
        self._by_name: dict[str, Declaration] = {}

    def add(self, declaration: Declaration) -> Declaration:
        """Add a schedule. Raises InvalidArgument if another one has its name."""
        known = self._by_name.setdefault(declaration.name, declaration)
        if known._definition != declaration._definition:
            raise InvalidArgument(
                f"Another schedule is declared as {declaration.name!r} already. "
                "Give one of the two a name of its own, with name=…."
            )
        return known

    async def declare_through(self, connection: Connection) -> None:
        """Declare all schedules; retry until the server answers. Raises a PulseError if it refuses one."""
        is_logged = False
        for declaration in self:
            async for _ in JitteredBackoff(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS):
                error = await declaration._try_through(connection)
                if error is None:
                    break
                if not is_logged:
                    logger.warning(
                        "The schedule %r is not declared yet, trying until it is: %s",
                        declaration.name,
                        error.message,
                    )
                    is_logged = True
        await self._report(connection)
        if self._by_name:
            logger.info("Declared the schedules %s.", ", ".join(self._by_name))

    async def _report(self, connection: Connection) -> None:
        """Send the names of all declared schedules; retry until the server answers."""
        if (request := self._all_declared()) is None:
            return
        async for _ in JitteredBackoff(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS):
            try:
                response = await connection.try_once(connection.stub.DeclareSchedules, request)
            except grpc.aio.AioRpcError as failed:
                if isinstance(connection.translate(failed), _TEMPORARY):
                    continue
                return  # an older server, or a role that may not
            self._warn_of(response)
            return

    async def report_through(self, caller: Caller, timeout: timedelta | None) -> None:
        """Send the names of all declared schedules once. Logs which of the application have vanished."""
        if (request := self._all_declared()) is None:
            return
        try:
            response = await caller.call(lambda stub: stub.DeclareSchedules, request, timeout)
        except PulseError:
            return  # the schedules themselves are declared
        self._warn_of(response)

    def _all_declared(self) -> pb.DeclareSchedulesRequest | None:
        if not self.application or len(self._by_name) > _MOST_DECLARED:
            return None
        return pb.DeclareSchedulesRequest(application=self.application, names=self._by_name)

    def _warn_of(self, response: pb.DeclareSchedulesResponse) -> None:
        if not (vanished := list(response.vanished)):
            return
        more = f" and {len(vanished) - _MOST_NAMED} more" if len(vanished) > _MOST_NAMED else ""
        logger.warning(
            "Schedules that %s declared earlier are not in its code any more, and still fire: %s%s. "
            "Delete them with: pulse schedules prune --declared-by %s. If another program has the same name, "
            "give each its own instead: Pulse(application=…).",
            self.application,
            ", ".join(vanished[:_MOST_NAMED]),
            more,
            self.application,
        )

    def __iter__(self) -> Iterator[Declaration]:
        return iter(list(self._by_name.values()))


# ---------------------------------------------------------------- verbs


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
