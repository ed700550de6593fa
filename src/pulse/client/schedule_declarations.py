"""Schedules that an application declares in its code, next to its handlers."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Any

import grpc.aio

from pulse import tuning
from pulse.client.schedule_definitions import create_schedule, with_defaults
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
from pulse.jobs.caller import Caller
from pulse.models.schedules import ScheduleInfo, schedule_info
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff

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
