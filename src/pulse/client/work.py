"""The verbs for work: register handlers, and run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from pulse.client.caller import Caller, seconds_of
from pulse.client.enqueues import EnqueueVerbs
from pulse.client.job_decorator import Job, Registering
from pulse.client.router import Router
from pulse.client.schedule_declarations import Declarations
from pulse.errors import InvalidArgument, InvalidHandler, PulseError
from pulse.handlers.options import HandlerOptions
from pulse.handlers.registry import Registry
from pulse.supervision.application import command_for, find_application
from pulse.supervision.supervisor import Supervisor
from pulse.wire.connection import Connection
from pulse.worker.settings import WorkerSettings
from pulse.worker.worker import Worker


class WorkVerbs(Registering, EnqueueVerbs):
    """The verbs of a `Pulse` that run jobs."""

    _caller: Caller
    _registry: Registry
    _declarations: Declarations
    _worker_settings: WorkerSettings

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

    async def run(
        self,
        *,
        topics: Iterable[str] | None = None,
        concurrency: int | None = None,
        drain_timeout: timedelta | None = None,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        handle_signals: bool = True,
    ) -> None:
        """Take jobs and run their handlers until SIGTERM, SIGINT or a cancellation. Drain, then return.

        `topics` selects some of the topics that have a handler. `concurrency` and `drain_timeout` override
        the client's settings. A worker of several topics runs the highest priority of all topics
        first.

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
        settings = self._run_settings(concurrency, drain_timeout, max_jobs, max_memory)
        await self._worker(connection, topics, settings, self).run(handle_signals)

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
        self._run_settings(
            options.get("concurrency"),
            options.get("drain_timeout"),
            options.get("max_jobs"),
            options.get("max_memory"),
        )

    def _run_settings(
        self,
        concurrency: int | None,
        drain_timeout: timedelta | None,
        max_jobs: int | None,
        max_memory: int | None,
    ) -> WorkerSettings:
        settings = replace(self._worker_settings, max_jobs=max_jobs, max_memory=max_memory)
        if concurrency is not None:
            settings = replace(settings, concurrency=concurrency)
        if drain_timeout is not None:
            settings = replace(settings, drain_seconds=seconds_of("drain_timeout", drain_timeout))
        return settings

    def _worker(
        self, connection: Connection, topics: Iterable[str] | None, settings: WorkerSettings, client: object
    ) -> Worker:
        return Worker(
            connection,
            self._registry,
            settings,
            topics,
            declare=self._declarations.declare_through,
            client=client,
        )


# Each process is an interpreter with a connection. A larger number is likely a typing error.
MOST_PROCESSES = 1_000


class RunOptions(TypedDict, total=False):
    """The options of `run` that `run_processes` passes to each process."""

    topics: Iterable[str] | None
    concurrency: int | None
    drain_timeout: timedelta | None
    max_jobs: int | None
    max_memory: int | None


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
