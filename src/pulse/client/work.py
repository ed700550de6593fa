"""The verbs for work: register handlers, and run them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pulse.client.caller import Caller
from pulse.client.job_decorator import Job, JobDecorator
from pulse.client.jobs import JobVerbs
from pulse.client.schedule_declarations import Declarations
from pulse.errors import InvalidHandler
from pulse.handlers.registry import Registry
from pulse.wire.connection import Connection
from pulse.worker.settings import WorkerSettings
from pulse.worker.worker import Worker


class WorkVerbs(JobVerbs):
    """What a `Pulse` can do to run jobs."""

    _caller: Caller
    _registry: Registry
    _declarations: Declarations
    _worker_settings: WorkerSettings

    def job(self, topic: str, /) -> JobDecorator:
        """Make the decorated function the handler of a topic. It becomes a `Job`, which can enqueue."""
        if not isinstance(topic, str):
            raise InvalidHandler('@p.job needs a topic: write @p.job("send-email").')
        return JobDecorator(lambda function: self._register(topic, function, sys._getframe(2).f_locals))

    def register(self, topic: str, function: Callable[..., Any], /) -> Job[..., ..., Any]:
        """Make a function the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals)

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any]
    ) -> Job[..., ..., Any]:
        if isinstance(function, Job):
            function = function.function
        return Job(self, self._registry.register(topic, function, names))

    @property
    def handled_topics(self) -> tuple[str, ...]:
        """The topics that have a handler here."""
        return tuple(self._registry)

    async def run(
        self,
        *,
        topics: Iterable[str] | None = None,
        concurrency: int | None = None,
        handle_signals: bool = True,
    ) -> None:
        """Take jobs and run their handlers until SIGTERM or SIGINT, or until cancelled; drain, then return.

        `topics` narrows it to some of those that have a handler; `concurrency` counts instead of what the
        client was made with. A worker of several topics drains the best priority over all of them.

        Schedules that were declared with `every` and `cron` are made sure of beside that; one that the
        server refuses ends the run with its error. Draining takes no more jobs, hands back those not
        started, and gives running handlers `drain_timeout` to finish; then they are cancelled and handed
        back. A second signal, or a second cancellation, does not wait. Signals are only handled in the
        main thread, and only where nobody else handles them: an application such as uvicorn keeps its own
        and cancels this task.
        """
        connection = self._caller.session().connection
        await self._worker(connection, topics, concurrency).run(handle_signals)

    def _worker(
        self, connection: Connection, topics: Iterable[str] | None, concurrency: int | None
    ) -> Worker:
        settings = self._worker_settings
        if concurrency is not None:
            settings = replace(settings, concurrency=concurrency)
        return Worker(
            connection, self._registry, settings, topics, declare=self._declarations.declare_through
        )
