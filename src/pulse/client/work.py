"""The verbs for work: register handlers, and run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from pulse.client.router import Router
from pulse.decorators import Job, Registering
from pulse.enqueues import EnqueueVerbs
from pulse.errors import InvalidArgument, InvalidHandler, PulseError
from pulse.handlers.handler import HandlerOptions
from pulse.handlers.registry import Registry
from pulse.jobs.caller import Caller, seconds_of
from pulse.jobs.submissions import check_known, takes_options
from pulse.schedules import Declarations
from pulse.supervision.supervised import command_for, find_application
from pulse.supervision.supervisor import Supervisor
from pulse.wire.connection import Connection
from pulse.worker.outcomes import VerdictHook
from pulse.worker.worker import Worker, WorkerSettings


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
