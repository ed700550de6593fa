"""Handlers and schedules that are collected without a client, in modules of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack, cast

from pulse.decorators import Job, Registering
from pulse.errors import InvalidHandler
from pulse.handlers.handler import Handler, HandlerOptions
from pulse.handlers.registry import Registry
from pulse.jobs.submissions import takes_options
from pulse.schedule_definitions import Cron, Every, ScheduleOptions, declared_definition
from pulse.schedules import Declaration, Declarations
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from pulse.enqueues import EnqueueVerbs
    from pulse.jobs.caller import Caller


@dataclass(frozen=True, slots=True)
class _Collected:
    topic: str
    function: Callable[..., Any]
    names: Mapping[str, Any]
    options: HandlerOptions
    handler: Handler
    """Of the jobs. It has the options of the client that includes it, with the defaults there."""

    def register_in(self, registry: Registry) -> None:
        made = registry.register(self.topic, self.function, self.names, self.options)
        self.handler.options = made.options


@dataclass(frozen=True, slots=True)
class _Client:
    """Where the handlers and schedules of a router go."""

    registry: Registry
    declarations: Declarations
    caller: Caller


class RoutedHandlers:
    """What routers of both kinds collect."""

    def __init__(self) -> None:
        self._handlers: dict[str, _Collected] = {}
        self._schedules: list[tuple[pb.CreateScheduleRequest, bool]] = []
        self._clients: list[_Client] = []
        self._target = _Target()

    @takes_options(ScheduleOptions)
    def every(
        self,
        topic: str,
        interval: timedelta,
        args: object = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Declare that a job is enqueued on the topic at every interval. See `Pulse.every`."""
        definition = declared_definition(topic, args, Every(interval), options)
        self._declare(definition, has_priority=options.get("priority") is not None)

    @takes_options(ScheduleOptions)
    def cron(
        self,
        topic: str,
        expression: str,
        args: object = None,
        *,
        tz: str | ZoneInfo = "UTC",
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Declare that a job is enqueued on the topic at the times of a cron expression."""
        definition = declared_definition(topic, args, Cron(expression, tz), options)
        self._declare(definition, has_priority=options.get("priority") is not None)

    def _declare(self, definition: pb.CreateScheduleRequest, *, has_priority: bool) -> None:
        self._schedules.append((definition, has_priority))
        for client in self._clients:
            _declare_with(client, definition, has_priority)

    def _collect(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> Handler:
        # A temporary registry checks topic, signature and duplicates where the handler is written.
        registry = Registry()
        known = self._handlers.get(topic)
        if known is not None:
            registry.register(topic, known.function, known.names, known.options)
        handler = registry.register(topic, function, names, options)
        collected = self._handlers[topic] = _Collected(topic, function, names, options, handler)
        for client in self._clients:
            collected.register_in(client.registry)
        return handler

    def _include_in(
        self, client: object, registry: Registry, declarations: Declarations, caller: Caller
    ) -> None:
        """Add everything to a client, or nothing if a topic is taken. Its jobs go there from now on."""
        new = [each for each in self._handlers.values() if not _is_there(registry, each)]
        for each in new:
            registry.check_free(each.topic, each.function)
        for each in new:
            each.register_in(registry)
        target = _Client(registry, declarations, caller)
        for definition, has_priority in self._schedules:
            _declare_with(target, definition, has_priority)
        if all(known.registry is not registry for known in self._clients):
            self._clients.append(target)
        self._target.client = client


class Router(Registering, RoutedHandlers):
    """Collects handlers and schedules without a client. `p.include(router)` adds them to a `Pulse`.

    A router may be included in several clients. `job.enqueue` uses the client that included it last.
    """

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> Job[..., ..., Any]:
        if isinstance(function, Job):
            function = function.function
        handler = self._collect(topic, function, names, options)
        return Job(cast("EnqueueVerbs", self._target), handler)


class _Target:
    """The client to which the jobs of a router go."""

    client: Any = None

    def __getattr__(self, name: str) -> Any:
        if self.client is None:
            raise InvalidHandler(
                "This job belongs to a router that no client has included: call p.include(router) first."
            )
        return getattr(self.client, name)


def _is_there(registry: Registry, collected: _Collected) -> bool:
    known = registry.get(collected.topic)
    return known is not None and known.function is collected.function


def _declare_with(client: _Client, definition: pb.CreateScheduleRequest, has_priority: bool) -> None:
    declaration = Declaration(client.caller, definition, client.registry, has_priority=has_priority)
    client.declarations.add(declaration)
