"""The async client: its handlers and `run`.

The verbs stand in enqueuing, operating, selecting, overseeing, pausing and scheduling.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from pulse import tuning
from pulse.client.caller import Caller, seconds_of
from pulse.client.declarations import Declarations
from pulse.client.enqueuing import Enqueuing
from pulse.client.job import Job, JobDecorator
from pulse.client.operating import Operating
from pulse.client.overseeing import Overseeing
from pulse.client.pausing import Pausing
from pulse.client.scheduling import Scheduling
from pulse.client.selecting import Selecting
from pulse.errors import InvalidHandler
from pulse.handlers.registry import Registry
from pulse.wire.connection import Connection
from pulse.wire.endpoint import make_endpoint
from pulse.wire.tls import ClientCertificate, File
from pulse.worker.settings import WorkerSettings
from pulse.worker.worker import Worker


class Pulse(Enqueuing, Operating, Selecting, Overseeing, Pausing, Scheduling):
    """A client of pulsed: enqueue jobs, look at them, schedule them, and run handlers.

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
        timeout: timedelta = timedelta(seconds=tuning.DEFAULT_TIMEOUT_SECONDS),
        drain_timeout: timedelta = timedelta(seconds=tuning.DEFAULT_DRAIN_SECONDS),
    ) -> None:
        """Check the settings; connect to nothing yet.

        `address` is `host`, `host:port` or `:port`; without it PULSE_ADDR counts, then localhost:50051.
        `user` and `password` default to PULSE_USER and PULSE_PASSWORD. `timeout` bounds every call,
        its retries included. `concurrency` is how many handlers `run()` runs at once; `drain_timeout`
        is what they get to finish when it stops.

        `tls=True` trusts the authorities that this machine trusts; `ca` is the PEM file of another one.
        `cert` is what the client shows itself: the files (certificate, key), or one file with both. The
        server's certificate has to be for the host of the address, or for `server_name`. Each of the three
        turns TLS on. PULSE_TLS (on or off), PULSE_TLS_CA, PULSE_TLS_CLIENT_CERT, PULSE_TLS_CLIENT_KEY and
        PULSE_TLS_SERVER_NAME count where nothing is given.
        """
        endpoint = make_endpoint(address, user, password, tls=tls, ca=ca, cert=cert, server_name=server_name)
        self._caller = Caller(endpoint, timeout)
        self._worker_settings = WorkerSettings(
            concurrency, seconds_of("drain_timeout", drain_timeout), worker_id
        )
        self._registry = Registry()
        self._declarations = Declarations()

    @property
    def address(self) -> str:
        """Where pulsed is, as host:port."""
        return self._caller.endpoint.address

    # ------------------------------------------------------------ handlers

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

    # ------------------------------------------------------------ lifetime

    async def close(self) -> None:
        """Close the connection. What is under way, `watch` and `run` included, raises ClientClosed.

        So do later calls. To drain a worker, cancel its `run` first.
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
