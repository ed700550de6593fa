"""The clients of a Django project: one that blocks for all threads, and one for each event loop.

They are made of the setting `PULSE`, which is checked. It says when a job is stored: after the commit of the
transaction, in the transaction itself, or at once.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, cast, get_args
from uuid import UUID

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from pulse import sql
from pulse.blocking.bridge import LaterHandle, SyncJobHandle
from pulse.blocking.client import SyncJob, SyncPulse
from pulse.client import Pulse
from pulse.connections import call_after_commit
from pulse.enqueues import JobItem, encode_items, of_item
from pulse.errors import InvalidArgument, InvalidTransition
from pulse.handlers.handler import JobOptions, make_options
from pulse.handlers.registry import CallNext, JobCall, check_topic
from pulse.ids import uuid7
from pulse.jobs.handles import JobHandle
from pulse.jobs.models import JobInfo
from pulse.jobs.submissions import (
    OPTIONS,
    EnqueueOptions,
    ItemOptions,
    ManyOptions,
    check_known,
    check_shared_unique,
)
from pulse.messages import check_items, check_payload
from pulse.sql import AnyJob
from pulse.v1 import pulse_pb2 as pb
from pulse.wire import redirection

When = Literal["on_commit", "transaction", "now"]
"""When `enqueue` stores a job: after the commit, in the transaction itself, or at once."""

_OF_THE_CLIENT = {name.upper(): name for name in inspect.signature(Pulse).parameters}
_OWN = ("ENQUEUE", "DATABASE", "DEFAULTS", "DASHBOARD", "CONNECT_IN_TESTS")
KEYS = (*_OF_THE_CLIENT, *_OWN)


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked setting `PULSE`."""

    client: Mapping[str, Any]
    """The parameters of `pulse.Pulse`, by their names."""
    enqueue: When
    database: str
    """The alias of the database whose transactions `enqueue` waits for, or stores jobs in."""
    defaults: Mapping[str, Any]
    """The options of handlers that are registered without their own."""
    dashboard: str
    """The address of the dashboard, without a slash at its end. Empty if there is none."""
    connect_in_tests: bool = False
    """Whether clients reach their own addresses while Django runs tests."""


def configured() -> Settings:
    """Return the setting `PULSE`. Raises ImproperlyConfigured for a key or a value that cannot be used."""
    given = getattr(settings, "PULSE", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(
            'The setting PULSE has to be a dict, such as {"ADDRESS": "localhost:50051"}, '
            f"but it is {given!r:.80}."
        )
    for key in given:
        if key not in KEYS:
            raise ImproperlyConfigured(_unknown(key))
    client = {name: given[key] for key, name in _OF_THE_CLIENT.items() if given.get(key) is not None}
    client.setdefault("application", os.environ.get("PULSE_APPLICATION") or _project())
    return Settings(
        client,
        _when(given.get("ENQUEUE", "on_commit")),
        _database(given.get("DATABASE", "default")),
        _of_type(given, "DEFAULTS", Mapping, {}),
        _of_type(given, "DASHBOARD", str, "").rstrip("/"),
        _of_type(given, "CONNECT_IN_TESTS", bool, False),
    )


def _unknown(key: object) -> str:
    close = difflib.get_close_matches(str(key).upper(), KEYS, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]}?" if close else f"The keys are {', '.join(KEYS)}."
    return f"The setting PULSE has no key {key!r}. {hint}"


def _when(given: Any) -> When:
    if given not in get_args(When):
        known = ", ".join(map(repr, get_args(When)))
        raise ImproperlyConfigured(f'PULSE["ENQUEUE"] has to be one of {known}, not {given!r:.80}.')
    when: When = given
    return when


def _database(alias: Any) -> str:
    if alias not in settings.DATABASES and alias != "default":  # Django adds a default without a database
        known = ", ".join(map(repr, settings.DATABASES))
        raise ImproperlyConfigured(f'PULSE["DATABASE"] is {alias!r:.80}, but DATABASES has only {known}.')
    return str(alias)


def _of_type(given: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = given.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        name = "dict" if kind is Mapping else kind.__name__
        raise ImproperlyConfigured(f'PULSE["{key}"] has to be a {name}, not {value!r:.80}.')
    return value


def _project() -> str | None:
    """Return the package of the settings: the name under which the project declares its schedules."""
    module = getattr(settings, "SETTINGS_MODULE", None)
    return module.partition(".")[0] if module else None


# ---------------------------------------------------------------- on commit
# The handle of a job that is stored after the commit.


class OnCommitHandle(LaterHandle):
    """A job that its transaction will store. After the commit it is used as the handle of any job.

    The id is known before if the job has neither a key nor `unique`: with these it may be an earlier job's.
    """

    def __init__(self, topic: str, job_id: str | None = None) -> None:
        self.topic = topic
        self._id = job_id
        self._handle: SyncJobHandle[Any] | None = None

    def _store(self, handle: SyncJobHandle[Any]) -> None:
        self._handle = handle

    @property
    def is_stored(self) -> bool:
        """True after the commit, if the server has stored the job."""
        return self._handle is not None

    @property
    def id(self) -> str:
        """The id of the job."""
        return self._id if self._id is not None else self._stored().id

    @property
    def duplicate(self) -> bool:
        """See `JobHandle.duplicate`."""
        return self._stored().duplicate

    @property
    def replaced(self) -> bool:
        """See `JobHandle.replaced`."""
        return self._stored().replaced

    @property
    def submitted_at(self) -> datetime | None:
        """See `JobHandle.submitted_at`."""
        return self._stored().submitted_at

    def result(self, timeout: timedelta | None = None) -> Any:
        """Wait until the job has completed, and return its result. See `JobHandle.result`."""
        return self._stored().result(timeout)

    def wait(self, timeout: timedelta | None = None) -> JobInfo:
        """Wait until the job has finished, and return it. See `JobHandle.wait`."""
        return self._stored().wait(timeout)

    def _stored(self) -> SyncJobHandle[Any]:
        if self._handle is None:
            raise InvalidTransition(
                f"The job for {self.topic!r} is stored after the commit of its transaction, which has not "
                "happened or was rolled back. Wait for the job after the block, or store it at once with "
                "pulse.django.enqueue_now(…)."
            )
        return self._handle

    def __repr__(self) -> str:
        state = repr(self._handle) if self._handle is not None else "after the commit"
        return f"<{type(self).__name__} {self.topic!r}: {state}>"


# ---------------------------------------------------------------- bounds
# The server's bounds of a new job, checked before the commit.
#
# After the commit a refusal would be too late: the rows are stored, and the job would be lost.

# Those of pulse_server/base/bounds.py: a test gives one table of bad requests to both.
_LONGEST_TEXT = 255
_MOST_ENTRIES = 64
_MOST_METADATA_BYTES = 16 * 1024
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime(2200, 1, 1, tzinfo=UTC)
_VERSION_OF_FIRES = 5


def check_bounds(request: pb.SubmitJobRequest) -> None:
    """Raise InvalidArgument for a job that the server would refuse."""
    _check_topic(request.topic)
    check_payload(request.payload)
    _check_text("key", request.idempotency_key)
    _check_text("lane", request.lane)
    _check_text("unique.key", request.unique.key)
    _check_metadata(request.metadata)
    _check_start(request)
    _check_id(request.job_id)


def _check_topic(topic: str) -> None:
    if not topic:
        raise InvalidArgument("topic is empty: name the kind of work, such as 'send-email'.")
    check_topic(topic)


def _check_text(name: str, text: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise InvalidArgument(f"{name} has {len(text)} characters; {_LONGEST_TEXT} are allowed at the most.")
    if "\0" in text:
        raise InvalidArgument(f"{name} contains a NUL character, which cannot be stored.")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > _MOST_ENTRIES:
        raise InvalidArgument(
            f"metadata has {len(metadata)} entries; {_MOST_ENTRIES} are allowed at the most."
        )
    size = sum(len(text.encode()) for entry in metadata.items() for text in entry)
    if size > _MOST_METADATA_BYTES:
        raise InvalidArgument(f"metadata has {size} bytes; {_MOST_METADATA_BYTES} are allowed at the most.")
    if any("\0" in text for entry in metadata.items() for text in entry):
        raise InvalidArgument("metadata contains a NUL character, which cannot be stored.")


def _check_start(request: pb.SubmitJobRequest) -> None:
    start = request.WhichOneof("start")
    if start == "delay" and request.delay.ToTimedelta() < timedelta(0):
        raise InvalidArgument("delay is negative: time runs forward only.")
    if start == "run_at" and not _FIRST_MOMENT <= request.run_at.ToDatetime(tzinfo=UTC) <= _LAST_MOMENT:
        raise InvalidArgument("run_at must lie between the years 1970 and 2200.")


def _check_id(job_id: str) -> None:
    try:
        version = UUID(job_id).version
    except ValueError:
        raise InvalidArgument(f"job_id {job_id!r:.40} is not a job id. Ids are UUIDs.") from None
    if version == _VERSION_OF_FIRES:
        raise InvalidArgument(
            "job_id is a UUID of version 5, and those belong to the fires of schedules. Take version 7 or 4; "
            "for a job that must be stored once under a name of yours, give a key."
        )


# ---------------------------------------------------------------- enqueueing

P = ParamSpec("P")
C = ParamSpec("C")
R = TypeVar("R")

Send = Callable[..., Any]
"""Sends jobs to the server, with the parameters of `enqueue` or `enqueue_many`."""


async def aenqueue(job: SyncJob[P, C, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[Any]:
    """Do what `job.enqueue(…)` does, for async code: in the thread of its queries and transactions."""
    return await sync_to_async(job.enqueue)(*args, **kwargs)


def enqueue_now(job: SyncJob[P, C, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[Any]:
    """Store a job at once, whatever becomes of the transaction."""
    payload = job._handler.encode_call(args, dict(kwargs), OPTIONS)
    # Not that of its client, which waits.
    return SyncPulse.enqueue(job._client, job.topic, payload, **job._options)


def enqueue(
    client: SyncPulse, send: Send, topic: str, args: object, options: Mapping[str, Any]
) -> SyncJobHandle[Any]:
    """Store a job as PULSE["ENQUEUE"] says. Its arguments and options are checked at once."""
    settings = configured()
    connection = transaction.get_connection(settings.database)
    if settings.enqueue == "now" or (settings.enqueue == "on_commit" and not _is_open(connection)):
        return cast("SyncJobHandle[Any]", send(topic, args, **options))
    payload, may_exist = checked(client, topic, args, options)
    if settings.enqueue == "transaction":
        job, rest = _job(client, topic, options)
        stored = sql.store(connection, job, payload, rest)
        return _handle(client, connection, job, stored)
    if not may_exist and options.get("job_id") is None:
        options = {**options, "job_id": uuid7()}
    handle = OnCommitHandle(topic, None if may_exist else options["job_id"])

    def store() -> None:
        handle._store(send(topic, payload, **options))

    connection.on_commit(store)
    return cast("SyncJobHandle[Any]", handle)


def enqueue_many(
    client: SyncPulse, send: Send, topic: str, items: Iterable[object], options: Mapping[str, Any]
) -> list[SyncJobHandle[Any]]:
    """Store a job for each item, when `enqueue` would. The ids are known after the commit."""
    check_items(items)
    settings = configured()
    connection = transaction.get_connection(settings.database)
    if settings.enqueue == "now" or (settings.enqueue == "on_commit" and not _is_open(connection)):
        return cast("list[SyncJobHandle[Any]]", send(topic, items, **options))
    given = list(items)
    payloads = encode_items(given, client._registry.get(topic))
    encoded: list[JobItem | bytes] = [
        JobItem(payload, **item.options) if isinstance(item, JobItem) else payload
        for item, payload in zip(given, payloads, strict=True)
    ]
    check_known("enqueue_many", options, ManyOptions.__annotations__)
    if settings.enqueue == "transaction":
        job, rest = _job(client, topic, options)
        return [
            _handle(client, connection, job, stored)
            for stored in sql.store_many(connection, job, encoded, rest)
        ]
    _check_many(client, topic, encoded, options)
    handles = [OnCommitHandle(topic) for _ in encoded]

    def store() -> None:
        for handle, stored in zip(handles, send(topic, encoded, **options), strict=True):
            handle._store(stored)

    connection.on_commit(store)
    return cast("list[SyncJobHandle[Any]]", handles)


def _is_open(connection: Any) -> bool:
    """True in a transaction. In one that the application manages by hand, Django then refuses `on_commit`."""
    return bool(connection.in_atomic_block or (connection.connection and not connection.autocommit))


def checked(client: SyncPulse, topic: str, args: object, options: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return the payload, and whether the job may exist already.

    Raises InvalidArgument for everything that the client or the server would refuse after the commit.
    """
    check_known("An enqueue", options, OPTIONS)
    client._async._caller.seconds(options.get("timeout"))
    handler = client._registry.get(topic) if isinstance(topic, str) else None
    submission = client._async._submission(topic, args, cast("ItemOptions", options), handler)
    request = submission.request
    check_bounds(request)
    return request.payload, bool(request.idempotency_key) or submission.is_unique


def _check_many(
    client: SyncPulse, topic: str, items: list[JobItem | bytes], options: Mapping[str, Any]
) -> None:
    """Raise InvalidArgument for the first item that would be refused after the commit."""
    check_shared_unique(options)
    shared = cast("ManyOptions", options)
    for number, item in enumerate(items):
        try:
            if isinstance(item, JobItem):
                checked(client, topic, item.args, item.merged_with(shared))
            else:
                checked(client, topic, item, options)
        except InvalidArgument as error:
            raise of_item(number, error) from error.__cause__


def _job(client: SyncPulse, topic: str, options: Mapping[str, Any]) -> tuple[AnyJob | str, ItemOptions]:
    """Return the job of the topic, or the topic if its handler is not here, and the options of its row."""
    handler = client._registry.get(topic)
    rest = {name: value for name, value in options.items() if name != "timeout"}  # of a call to the server
    return topic if handler is None else SyncJob(client, handler), cast("ItemOptions", rest)


def _handle(
    client: SyncPulse, connection: Any, job: AnyJob | str, stored: JobHandle[Any]
) -> SyncJobHandle[Any]:
    if not isinstance(job, str):
        return cast("SyncJobHandle[Any]", stored)
    call_after_commit(connection, client._wake)
    made = client._async._handles.made(stored.id, stored.topic, stored.duplicate, stored.replaced)
    return client._handles.of(made)


# ---------------------------------------------------------------- connections
# Checks and closes the connections to the application's databases around each job, in the thread of the job.
#
# Django does it around each request. A connection that broke between two jobs is replaced at the next query.


def refresh_connections() -> None:
    """Close connections of this thread that are broken or too old. Have the next query check the others.

    Leaves a connection in an atomic block alone: in tests a handler runs in the transaction of its test.
    """
    destination = redirection.current_redirection()
    if destination is not None and not destination.runs_workers:
        return  # a look at a connection opens it, which pytest-django refuses in tests without a database
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
            # Whatever CONN_HEALTH_CHECKS is: the connection may have been idle for hours, and a job that
            # fails for that may have no other attempt. It costs a round trip in jobs that query.
            connection.health_check_enabled = True


async def with_fresh_connections(_: JobCall, call_next: CallNext) -> None:
    """Run a handler between two checks of its connections. Middleware of a `DjangoPulse`."""
    if asyncio._get_running_loop() is not None:
        await _in_own_thread(call_next)
        return
    refresh_connections()
    try:
        await call_next()
    finally:
        refresh_connections()


# Threads of async handlers that have ended, with their connections.
_idle: list[Executor] = []


async def _in_own_thread(call_next: CallNext) -> None:
    """Run an async handler, with its queries in a thread for this job alone. ASGI requests do the same.

    Otherwise all async handlers of the process would share one thread and its connection: they would wait for
    each other, and the check of one could close the connection under a cursor of another.
    """
    if SyncToAsync.thread_sensitive_context.get(None) is not None:
        await call_next()  # a test has chosen a thread
        return
    context = ThreadSensitiveContext()
    # Not entered: leaving it would block the event loop until the thread is done. The contextvars end with
    # the job.
    SyncToAsync.thread_sensitive_context.set(context)
    if _idle:
        executor = SyncToAsync.context_to_thread_executor[context] = _idle.pop()
        executor.submit(refresh_connections)
    canceled = False
    try:
        await call_next()
    except asyncio.CancelledError:
        canceled = True
        raise
    finally:
        used = SyncToAsync.context_to_thread_executor.pop(context, None)
        if used is not None:
            given_back = asyncio.wrap_future(used.submit(_give_back, used))
            if not canceled:  # a query of a canceled handler may still run
                # Otherwise the next job of this slot would take one more thread and connection.
                await asyncio.wait([given_back])


def _give_back(executor: Executor) -> None:
    refresh_connections()
    _idle.append(executor)


# ---------------------------------------------------------------- clients


class DjangoPulse(SyncPulse):
    """The client of a Django project. In a transaction, `enqueue` waits for the commit."""

    # Where other processes find it. Importing that module sets Django up.
    _place = ("pulse.django.worker", "app")

    def __init__(self, settings: Settings) -> None:
        super().__init__(**settings.client)
        self._registry.defaults = cast("JobOptions", settings.defaults)
        self.middleware(with_fresh_connections)

    def enqueue(
        self, topic: str, args: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncJobHandle[Any]:
        """Store a job: after the commit, in the transaction or at once, as PULSE["ENQUEUE"] says."""
        return enqueue(self, super().enqueue, topic, args, options)

    def enqueue_many(
        self, topic: str, items: Iterable[object], **options: Unpack[ManyOptions]
    ) -> list[SyncJobHandle[Any]]:
        """Store a job for each item, when `enqueue` would."""
        return enqueue_many(self, super().enqueue_many, topic, items, options)

    def enqueue_now(
        self, topic: str, args: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncJobHandle[Any]:
        """Store a job at once, whatever becomes of the transaction."""
        return super().enqueue(topic, args, **options)


_lock = threading.Lock()
_client: DjangoPulse | None = None
_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pulse] = weakref.WeakKeyDictionary()


def client() -> DjangoPulse:
    """Return the client of the project, whose verbs block. The first call makes it. It does not connect."""
    global _client
    with _lock:
        if _client is None:
            settings = configured()
            try:
                make_options(cast("JobOptions", settings.defaults))
            except InvalidArgument as error:
                raise ImproperlyConfigured(f'PULSE["DEFAULTS"] cannot be used: {error.message}') from error
            try:
                _client = DjangoPulse(settings)
            except InvalidArgument as error:
                raise ImproperlyConfigured(f"The setting PULSE cannot be used: {error.message}") from error
        return _client


def aclient() -> Pulse:
    """Return the async client of the running event loop, to read and change jobs.

    It has no handlers, and its `enqueue` does not wait for a commit: `aenqueue(job, …)` does. A process that
    serves ASGI or runs a worker has one event loop. Under WSGI each request has a new one: use `client()`.
    """
    loop = asyncio.get_running_loop()
    found = _by_loop.get(loop)
    if found is None:
        client()  # raises ImproperlyConfigured for settings that cannot be used
        found = _by_loop[loop] = Pulse(**configured().client)
    return found
