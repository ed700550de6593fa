"""When a job is stored: after the commit of the transaction, in the transaction itself, or at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import transaction

from pulse import sql
from pulse.blocking.client import SyncPulse
from pulse.blocking.handles import SyncJobHandle
from pulse.blocking.job_decorator import SyncJob
from pulse.checks import check_items
from pulse.client.options import (
    OPTIONS,
    ItemOptions,
    JobItem,
    ManyOptions,
    check_known,
    check_shared_unique,
    encode_items,
    of_item,
)
from pulse.connections import call_after_commit
from pulse.django.bounds import check_bounds
from pulse.django.on_commit import OnCommitHandle
from pulse.django.settings import configured
from pulse.errors import InvalidArgument
from pulse.ids import uuid7
from pulse.models.job_handle import JobHandle
from pulse.sql.sending import AnyJob

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
