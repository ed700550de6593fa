"""The async client: its settings, its verbs by noun, and its lifetime.

Handlers are registered with it, or collected without a client in routers, and run by it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

from pulse import tuning
from pulse.decorators import Job, Registering
from pulse.enqueues import EnqueueVerbs, GatherVerbs, Handles
from pulse.errors import InvalidArgument, InvalidHandler, PulseError
from pulse.handlers.handler import Handler, HandlerOptions
from pulse.handlers.registry import AroundVerbs, Registry
from pulse.jobs.caller import Caller, Wakes, seconds_of
from pulse.jobs.selections import SelectionVerbs
from pulse.jobs.submissions import check_known, takes_options
from pulse.jobs.verbs import JobVerbs, StepVerbs, UndoVerbs
from pulse.overview import AccessVerbs, AuditVerbs, OverviewVerbs
from pulse.schedule_definitions import Cron, Every, ScheduleOptions, declared_definition
from pulse.schedules import Declaration, Declarations, ScheduleVerbs
from pulse.supervision.supervised import command_for, find_application
from pulse.supervision.supervisor import Supervisor
from pulse.topics import DispatchVerbs, TopicVerbs
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.endpoint import ClientCertificate, Endpoint, File, make_endpoint
from pulse.worker.outcomes import VerdictHook, VerdictVerbs
from pulse.worker.worker import Worker, WorkerSettings
from pulse.workflows import WorkflowVerbs

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


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


# ---------------------------------------------------------------- work


class RunOptions(TypedDict, total=False):
    """The options of `run` that `run_processes` passes to each process."""

    topics: Iterable[str] | None
    concurrency: int | None
    drain_timeout: timedelta | None
    max_jobs: int | None
    max_memory: int | None


class WorkOptions(RunOptions, total=False):
    """The options of `run`."""

    handle_signals: bool


class WorkVerbs(Registering, EnqueueVerbs):
    """The verbs of a `Pulse` that run jobs."""

    _caller: Caller
    _registry: Registry
    _declarations: Declarations
    _worker_settings: WorkerSettings
    _verdict_hooks: list[VerdictHook]

    def _register(
        self,
        topic: str,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: HandlerOptions,
    ) -> Job[..., ..., Any]:
        if isinstance(function, Job):
            function = function.function
        return Job(self, self._registry.register(topic, function, names, options))

    def include(self, router: Router, /) -> None:
        """Add the handlers and schedules of a router. Adds none if a topic has a handler already."""
        if not isinstance(router, Router):
            raise InvalidHandler(f"p.include takes a pulse.Router, but {router!r} was given.")
        router._include_in(self, self._registry, self._declarations, self._caller)

    @property
    def handled_topics(self) -> tuple[str, ...]:
        """The topics that have a handler."""
        return tuple(self._registry)

    @takes_options(WorkOptions)
    async def run(self, **options: Unpack[WorkOptions]) -> None:
        """Take jobs and run their handlers until SIGTERM, SIGINT or a cancellation. Drain, then return.

        `topics` selects some of the topics that have a handler, by name or by a pattern such as `mail.*`.
        `concurrency` and `drain_timeout` override the client's settings. A worker of several topics
        runs the highest priority of all topics first.

        For handlers that leak memory, `max_jobs` and `max_memory` end the run; a supervisor has to
        start the process again. With `max_jobs` the run drains and returns once about that many
        jobs (at random between 90% and 100% of it) are reported. With `max_memory` it does so once
        the process takes more bytes of memory. Jobs that have started by then are finished: up to
        about twice the `concurrency`.

        The run also creates the schedules declared with `every` and `cron`. If the server refuses
        one, the run ends with its error. Draining takes no more jobs, releases jobs that have not
        started, and gives running handlers `drain_timeout` to finish; then it cancels them and
        releases their jobs. A second signal or cancellation stops at once. Signals are only handled
        in the main thread, and only if the application has no signal handlers: uvicorn keeps its
        own and cancels this task.
        """
        connection = self._caller.session().connection
        await self._worker(connection, options, self).run(options.get("handle_signals", True))

    async def run_processes(
        self,
        processes: int,
        *,
        handle_signals: bool = True,
        **options: Unpack[RunOptions],
    ) -> None:
        """Run the handlers in several processes until SIGTERM, SIGINT or a cancellation. Drain, then return.

        Each process is a fresh interpreter that imports the program and calls `run` with these options, so
        the client has to be a global of a module, and the call behind `if __name__ == "__main__":`.
        A process that dies is started again, at once or after a wait of up to 30 s. A process that
        reaches `max_jobs` or `max_memory` is replaced: its successor connects first, then it
        drains. SIGHUP replaces all processes, one at a time. If this process is killed, its
        children drain and end.

        Raises PulseError if the first process ends before it is connected; its own error is printed.
        """
        self._check_options(options)
        await run_in_processes(self, processes, options, handle_signals)

    def _check_options(self, options: RunOptions) -> None:
        """Raise InvalidArgument for options that `run` would refuse in every process."""
        topics = options.get("topics")
        if topics is not None and not isinstance(topics, str):
            options["topics"] = topics = list(topics)  # it may be a generator
        self._registry.select(topics)
        self._run_settings(options)

    def _run_settings(self, options: RunOptions) -> WorkerSettings:
        check_known("run()", options, WorkOptions.__annotations__)
        given: dict[str, Any] = {
            name: value
            for name in ("concurrency", "max_jobs", "max_memory")
            if (value := options.get(name)) is not None
        }
        if (drain_timeout := options.get("drain_timeout")) is not None:
            given["drain_seconds"] = seconds_of("drain_timeout", drain_timeout)
        return replace(self._worker_settings, **given)

    def _worker(self, connection: Connection, options: RunOptions, client: object) -> Worker:
        return Worker(
            connection,
            self._registry,
            self._run_settings(options),
            options.get("topics"),
            declare=self._declarations.declare_through,
            client=client,
            verdict_hooks=self._verdict_hooks,
        )


# Each process is an interpreter with a connection. A larger number is likely a typing error.
MOST_PROCESSES = 1_000


async def run_in_processes(client: object, processes: int, options: RunOptions, handle_signals: bool) -> None:
    """Supervise processes that run the handlers of this client. Raises PulseError if none can be started."""
    if not isinstance(processes, int) or not 1 <= processes <= MOST_PROCESSES:
        raise InvalidArgument(
            f"processes has to be between 1 and {MOST_PROCESSES}, but {processes!r} was given."
        )
    command = command_for(find_application(client, _plain(options)))
    if code := await Supervisor(command, processes).run(handle_signals):
        raise PulseError(
            f"The worker processes ended with exit code {code}: see their errors, which they have printed."
        )


def _plain(options: RunOptions) -> dict[str, Any]:
    """Return the options as JSON can carry them."""
    plain: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if (topics := options.get("topics")) is not None:
        plain["topics"] = list(topics)
    if (drain_timeout := plain.pop("drain_timeout", None)) is not None:
        plain["drain_seconds"] = drain_timeout.total_seconds()
    return plain


# ---------------------------------------------------------------- the client


class Pulse(
    WorkVerbs,
    AroundVerbs,
    WorkflowVerbs,
    EnqueueVerbs,
    JobVerbs,
    GatherVerbs,
    SelectionVerbs,
    UndoVerbs,
    VerdictVerbs,
    ScheduleVerbs,
    DispatchVerbs,
    TopicVerbs,
    StepVerbs,
    OverviewVerbs,
    AuditVerbs,
    AccessVerbs,
):
    """A client of pulsed: enqueue jobs, read them, schedule them, and run handlers.

    Nothing connects before the first call. One object serves any number of tasks; use it from one event
    loop at a time. Close it with `await p.close()`, or use `async with`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        tls: bool | None = None,
        ca: File | None = None,
        cert: ClientCertificate | None = None,
        server_name: str | None = None,
        concurrency: int = tuning.DEFAULT_CONCURRENCY,
        worker_id: str | None = None,
        application: str | None = None,
        timeout: timedelta = timedelta(seconds=tuning.DEFAULT_TIMEOUT_SECONDS),
        outage_timeout: timedelta | None = None,
        drain_timeout: timedelta = timedelta(seconds=tuning.DEFAULT_DRAIN_SECONDS),
        retry_undecodable: bool = False,
        lost_slots_exit: int | None = None,
    ) -> None:
        """Validate the settings. Does not connect.

        `address` is `host`, `host:port` or `:port`. It defaults to PULSE_ADDR, then to localhost:50051.
        Several servers of one database have commas between them: `a:50051,b:50051`. Calls go to one of them,
        and to the next while it is away.
        `user` and `password` default to PULSE_USER and PULSE_PASSWORD. `timeout` bounds every call,
        including its retries. `concurrency` is how many handlers `run()` runs at once. `drain_timeout`
        is how long they may take to finish when it stops. A job whose arguments its handler cannot read
        becomes a dead letter at once; with `retry_undecodable` it is retried, so that during a rolling
        deploy it reaches a worker whose code can read them. `run()` drains and raises SlotsLost once
        `lost_slots_exit` slots, by default half, are lost to handlers that do not end at their time limit.
        `application` is the name under which `every` and `cron` declare schedules. It defaults to
        PULSE_APPLICATION, then to the module that creates the client.

        The default of `timeout` outlasts a restart of pulsed. For a web application that is too long: with
        `outage_timeout` a call fails after that time while there is no connection, and right after a failure
        calls fail at once, except for one a second that tries again.

        `tls=True` trusts the certificate authorities of this machine; `ca` is the PEM file of another one.
        `cert` is the client's own certificate: the files (certificate, key), or one file with both. The
        server's certificate has to name the host of the address, or `server_name`. Each of the three
        turns TLS on. The defaults are PULSE_TLS (on or off), PULSE_TLS_CA, PULSE_TLS_CLIENT_CERT,
        PULSE_TLS_CLIENT_KEY and PULSE_TLS_SERVER_NAME.
        """
        endpoint = make_endpoint(address, user, password, tls=tls, ca=ca, cert=cert, server_name=server_name)
        self._caller = Caller(endpoint, timeout, outage_timeout)
        self._worker_settings = WorkerSettings(
            concurrency, seconds_of("drain_timeout", drain_timeout), worker_id, lost_slots_exit
        )
        self._registry = Registry(retry_undecodable, self.hold)
        self._handles = Handles(self._caller, self._registry)
        self._declarations = Declarations(application_name(application))
        self._enqueue_middleware = []
        self._verdict_hooks = []
        self._wakes = Wakes(self._caller)
        self._wake = self._wakes.send_soon
        _clients.add(self)

    @property
    def address(self) -> str:
        """The address of pulsed, as host:port, of several servers with commas between them."""
        return self._endpoint.address

    def server_time(self) -> datetime:
        """Return the time by the server's clock, which all times of jobs are by. Makes no call.

        It is known from the last answer about jobs, topics or the like. Before the first, it is this
        machine's time.
        """
        return datetime.now(UTC) + self._caller.server_ahead

    @property
    def _endpoint(self) -> Endpoint:
        return self._caller.endpoint

    def _live_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this event loop for verbs of `def` handlers. For processes without one of the application."""
        self._caller.live_in(loop)

    async def close(self) -> None:
        """Close the connection. Calls in flight, including `watch` and `run`, raise ClientClosed.

        Later calls raise it too. To drain a worker, cancel its `run` first.
        """
        await self._caller.close()

    async def __aenter__(self) -> Self:
        self._caller.reopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def existing_clients() -> list[Any]:
    """Return the clients of this process, async and blocking. For `pulse.testing`."""
    return list(_clients)


def is_part_of(client: Pulse, blocking: object) -> None:
    """Let the blocking client stand for the async one that it consists of."""
    _clients.discard(client)
    _clients.add(blocking)


_LONGEST = 255
_MAIN = ("__main__", "__mp_main__")


def application_name(given: str | None) -> str:
    """Return the given name, PULSE_APPLICATION, or the name of the module that creates the client.

    Empty in a notebook or at a prompt: a name would change with each session.
    """
    name = os.environ.get("PULSE_APPLICATION", "") if given is None else given
    if not isinstance(name, str) or len(name) > _LONGEST or not name.isprintable():
        raise InvalidArgument(
            f"application has to be a name of up to {_LONGEST} characters, such as 'shop', not {name!r:.80}."
        )
    return name or _module_of_the_caller()


def _module_of_the_caller() -> str:
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "pulse" and frame.f_back is not None:
        frame = frame.f_back
    return _name_of(frame.f_globals)[:_LONGEST]


def _name_of(module: Mapping[str, Any]) -> str:
    name = str(module.get("__name__", ""))
    if name not in _MAIN:
        return name
    # `python -m shop.app` has the name in the spec. `python app.py` has the file only.
    if (spec := module.get("__spec__")) is not None:
        return str(spec.name).removesuffix(".__main__")
    return PurePath(module.get("__file__") or "").stem
