"""The async client: its settings, its verbs by noun, and its lifetime."""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self

from pulse import tuning
from pulse.client.work import WorkVerbs
from pulse.enqueues import EnqueueVerbs, GatherVerbs, Handles
from pulse.errors import InvalidArgument
from pulse.handlers.registry import AroundVerbs, Registry
from pulse.jobs.caller import Caller, Wakes, seconds_of
from pulse.jobs.selections import SelectionVerbs
from pulse.jobs.verbs import JobVerbs, StepVerbs, UndoVerbs
from pulse.overview import AccessVerbs, AuditVerbs, OverviewVerbs
from pulse.schedules import Declarations, ScheduleVerbs
from pulse.topics import DispatchVerbs, TopicVerbs
from pulse.wire.endpoint import ClientCertificate, Endpoint, File, make_endpoint
from pulse.worker.outcomes import VerdictVerbs
from pulse.worker.worker import WorkerSettings
from pulse.workflows import WorkflowVerbs


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
