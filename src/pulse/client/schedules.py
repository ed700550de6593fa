"""The verbs that make schedules; `p.schedules` has those that manage them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.client.caller import Caller
from pulse.client.schedule_declarations import Declaration, Declarations
from pulse.client.schedule_definitions import create_schedule, make_definition
from pulse.client.stored_schedules import Schedules
from pulse.models.schedules import CatchUp, ScheduleInfo
from pulse.models.specs import Cron, Every, Spec

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class ScheduleVerbs:
    """What a `Pulse` can do to make schedules."""

    _caller: Caller
    _declarations: Declarations

    @property
    def schedules(self) -> Schedules:
        """The verbs for schedules that are there: list them, retune them, pause, fire and delete them."""
        return Schedules(self._caller)

    async def schedule(
        self,
        topic: str,
        args: object,
        spec: Spec,
        *,
        name: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp = "one",
        replace: bool = False,
        strict: bool = False,
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Store a schedule that enqueues a job on the topic, with these arguments, whenever `spec` says.

        A name makes this repeatable: the same definition again answers with the same schedule; another
        one raises AlreadyExists, or retunes the schedule if `replace` is true. Without a name each call
        makes a schedule, so when an answer is lost this is not sent again by itself: it raises
        Unavailable, and `schedules.list` tells whether the schedule is there. The same holds for `At` and
        `After`, whose schedule is gone once it has fired. `catch_up` says what becomes of occurrences that
        no server was there to fire. `strict` refuses an `At` that has passed, which else fires at once.
        """
        definition = make_definition(
            topic,
            args,
            spec,
            name=name,
            priority=priority,
            max_attempts=max_attempts,
            metadata=metadata,
            catch_up=catch_up,
            replace=replace,
            strict=strict,
        )
        return await create_schedule(self._caller, definition, timeout)

    # ------------------------------------------------------------ declarations

    def every(
        self,
        topic: str,
        interval: timedelta,
        args: object = None,
        *,
        name: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp = "one",
    ) -> Declaration:
        """Declare that a job is enqueued on the topic at every interval. Sends nothing yet.

        `run()` makes sure of the schedule when it starts, and so do `await p.declare()` and awaiting what
        this returns. It has one name, the topic unless you give another, so that starting the application
        again makes no second one; where the code has changed, the schedule is retuned.
        """
        return self._declare(topic, args, Every(interval), name, priority, max_attempts, metadata, catch_up)

    def cron(
        self,
        topic: str,
        expression: str,
        args: object = None,
        *,
        tz: str | ZoneInfo = "UTC",
        name: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp = "one",
    ) -> Declaration:
        """Declare that a job is enqueued on the topic whenever the cron expression says, as `every` does."""
        return self._declare(
            topic, args, Cron(expression, tz), name, priority, max_attempts, metadata, catch_up
        )

    async def declare(self, *, timeout: timedelta | None = None) -> list[ScheduleInfo]:
        """Make sure of every declared schedule, and return them. `timeout` bounds each of them.

        For programs that declare and do not `run()`.
        """
        return [await declaration.declare(timeout=timeout) for declaration in self._declarations]

    def _declare(
        self,
        topic: str,
        args: object,
        spec: Spec,
        name: str | None,
        priority: int,
        max_attempts: int | None,
        metadata: Mapping[str, str] | None,
        catch_up: CatchUp,
    ) -> Declaration:
        definition = make_definition(
            topic,
            args,
            spec,
            name=topic if name is None else name,
            priority=priority,
            max_attempts=max_attempts,
            metadata=metadata,
            catch_up=catch_up,
            replace=True,
        )
        return self._declarations.add(Declaration(self._caller, definition))
