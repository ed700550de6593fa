"""Enqueue in a transaction of your own: the job is stored exactly if your rows are.

    with transaction.atomic():                                   # Django
        order = Order.objects.create(total=90)
        pulse.sql.enqueue(connection, send_receipt, order.id)

The connection is one to the database of pulsed: of asyncpg, psycopg, psycopg2 or Django, or a connection or
session of SQLAlchemy. With an async connection the verbs are awaited. ADR-0075

The statement runs within the middleware and the trace of the application. Workflows: ADR-0077
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from pulse import connections, payload
from pulse.blocking.client import SyncJob, SyncPulse
from pulse.blocking.verbs import SyncWorkflow, SyncWorkflowHandle, surround_blocking, surround_topics_blocking
from pulse.client import Pulse
from pulse.connections import Row, Statement
from pulse.decorators import Job
from pulse.enqueues import JobItem, completed, encode_items, of_item
from pulse.errors import InvalidArgument, InvalidMiddleware
from pulse.handlers.registry import Enqueue, EnqueueMiddleware, surround, surround_topics
from pulse.jobs.handles import JobHandle
from pulse.jobs.submissions import OPTIONS, ItemOptions, SharedOptions, check_known, make_submission
from pulse.messages import check_items, storable
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.redirection import check_database
from pulse.workflows import Workflow, WorkflowHandle

__all__ = ["enqueue", "enqueue_many", "enqueue_workflow", "wake"]

SCHEMA = "pulse"

# The parameters of the functions, and what each value is cast to. Types that drivers disagree about are sent
# as text.
_TYPES = {
    "topic": "text",
    "payload": "bytea",
    "payloads": "bytea[]",
    "priority": "integer",
    "run_at": "timestamptz",
    "delay": "interval",
    "max_attempts": "integer",
    "start_within": "interval",
    "lane": "text",
    "key": "text",
    "metadata": "text::jsonb",
    "id": "text::uuid",
    "unique_key": "text",
    "unique_scope": "text",
    "on_conflict": "text",
    "period": "interval",
    "longest": "interval",
    "default_attempts": "integer",
    "keys": "text[]",
    "lanes": "text[]",
}


def enqueue(connection: Any, job: AnyJob | str, /, *args: Any, strict: bool = False, **kwargs: Any) -> Any:
    """Store a job in the transaction of the connection. Returns its handle: await it if that is async.

    `job` is a handler, and the rest are its arguments: `enqueue(connection, send_receipt, order.id)`. Its
    options are `send_receipt.options(key=…)`. Or `job` is a topic, followed by the arguments as one value and
    the options: `enqueue(connection, "send-receipt", {"order": 7}, key=…)`. They are those of `p.enqueue`.

    No server sees the job before the commit. Outside of a transaction the job is stored at once; with
    `strict` that raises InvalidArgument. An error aborts the transaction, as any error of SQL does. The
    handle of a topic given by name has no client: it cannot wait for its job.
    """
    return enqueue_in(SCHEMA, connection, job, args, kwargs, strict=strict)


def enqueue_many(
    connection: Any, job: AnyJob | str, items: Iterable[object], /, *, strict: bool = False, **options: Any
) -> Any:
    """Store a job for each item, all with one statement. Returns their handles in the same order.

    All jobs share the options. A `JobItem` can add a key and a lane. If a job with the key exists, the
    handle names that job, and `duplicate` is not set. The rest is as for `enqueue`.
    """
    return enqueue_many_in(SCHEMA, connection, job, items, options, strict=strict)


def wake(client: Pulse | SyncPulse, /) -> None:
    """Have servers look now for jobs that a committed transaction has stored. They do so regularly anyway.

    It returns at once and never raises. Django and sessions of SQLAlchemy need it only for topics by name:
    for a handler's job they do it after the commit. A `Pulse` needs an event loop that runs.
    """
    client._wake()


# ------------------------------------------------------------ the functions of a schema


def enqueue_in(
    schema: str,
    connection: Any,
    job: AnyJob | str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    strict: bool,
) -> Any:
    """Call `enqueue` of this schema."""
    if isinstance(job, str):
        if len(args) > 1:
            raise InvalidArgument(f"The arguments of {job!r} are one value, but {len(args)} were given.")
        check_known("An enqueue", kwargs, ItemOptions.__annotations__)
        encoded, options = payload.encode(args[0] if args else None), kwargs
    else:
        encoded = _checked(job)._handler.encode_call(args, dict(kwargs), OPTIONS)
        options = job._options
    return store(connection, job, encoded, options, schema, strict=strict)


def store(
    connection: Any,
    job: AnyJob | str,
    encoded: bytes,
    options: Mapping[str, Any],
    schema: str = SCHEMA,
    *,
    strict: bool = False,
) -> Any:
    """Call `enqueue` of this schema for a payload that was checked."""
    request = _request(job, encoded, options)

    def statement() -> Statement:
        return _call_of(f"{schema}.enqueue", _arguments_of(request), "enqueue", strict=strict)

    def read(row: Row) -> JobHandle[Any]:
        return _handle(job, request.topic, *row)

    return send(connection, job, request, [encoded], statement, read, wakes=schema == SCHEMA)


def enqueue_many_in(
    schema: str,
    connection: Any,
    job: AnyJob | str,
    items: Iterable[object],
    options: Mapping[str, Any],
    *,
    strict: bool,
) -> Any:
    """Call `enqueue_many` of this schema."""
    check_items(items)
    if isinstance(job, str):
        check_known("enqueue_many", options, SharedOptions.__annotations__)
        given, shared = list(items), cast("SharedOptions", options)
    else:
        if options:
            name = next(iter(options))
            raise InvalidArgument(
                f"Options come with the handler: enqueue_many(…, job.options({name}=…), …)."
            )
        found, shared = _checked(job)._encode_many(items)
        given = list[object](found)
    return store_many(connection, job, given, shared, schema, strict=strict)


def store_many(
    connection: Any,
    job: AnyJob | str,
    given: Sequence[object],
    shared: SharedOptions,
    schema: str = SCHEMA,
    *,
    strict: bool = False,
) -> Any:
    """Call `enqueue_many` of this schema for items that the handler has checked."""
    payloads = encode_items(given, None)
    if _completed(job, shared).get("unique"):
        raise InvalidArgument(
            "enqueue_many cannot store unique jobs in a transaction: enqueue each by itself."
        )
    request = _request(job, b"", shared)
    own = [_own_options(at, item) for at, item in enumerate(given)]

    def statement() -> Statement:
        arguments: dict[str, Any] = {**_arguments_of(request), "payloads": payloads}
        del arguments["payload"]
        if any("key" in options for options in own):
            arguments["keys"] = [options.get("key") for options in own]
        if any("lane" in options for options in own):
            arguments["lanes"] = [options.get("lane") for options in own]
        return _call_of(f"{schema}.enqueue_many", arguments, "enqueue_many", strict=strict)

    def read(row: Row) -> list[JobHandle[Any]]:
        return [_handle(job, request.topic, job_id) for job_id in row[0]]

    return send(connection, job, request, payloads, statement, read, wakes=schema == SCHEMA)


def _checked(job: AnyJob) -> AnyJob:
    if not isinstance(job, Job | SyncJob):
        raise InvalidArgument(f"Give a handler, as @p.job makes it, or the name of a topic, not {job!r}.")
    return job


def _own_options(at: int, item: object) -> ItemOptions:
    options = item.options if isinstance(item, JobItem) else {}
    if others := sorted(options.keys() - {"key", "lane"}):
        raise of_item(
            at,
            InvalidArgument(
                f"In a transaction an item can have a key and a lane of its own, but {others[0]} was given: "
                "enqueue it by itself."
            ),
        )
    try:
        storable(make_submission("", b"", JobHandle, options).request)
    except InvalidArgument as error:
        raise of_item(at, error) from None
    return options


def _request(job: AnyJob | str, encoded: bytes, options: Mapping[str, Any]) -> pb.SubmitJobRequest:
    """Return the request for the job, as it would be sent to a server: its options are checked alike."""
    topic = job if isinstance(job, str) else job.topic
    default_attempts = None if isinstance(job, str) else job._handler.options.max_attempts
    submission = make_submission(topic, encoded, JobHandle, _completed(job, options), default_attempts)
    if submission.id_is_ours:
        submission.request.job_id = ""  # the function makes one: that costs less
    return storable(submission.request)


def _completed(job: AnyJob | str, options: Mapping[str, Any]) -> ItemOptions:
    given = cast("ItemOptions", options)
    return given if isinstance(job, str) else completed(given, job._handler)


def _handle(
    job: AnyJob | str, topic: str, job_id: str, duplicate: bool = False, replaced: bool = False
) -> JobHandle[Any]:
    if isinstance(job, str):
        return JobHandle(job_id, topic, duplicate, replaced)
    return job._stored(job_id, duplicate, replaced)


def _arguments_of(request: pb.SubmitJobRequest) -> dict[str, Any]:
    """Return the arguments of the function by name. The rest have the defaults of the function."""
    arguments: dict[str, Any] = {
        "topic": request.topic,
        "payload": request.payload,
        "priority": request.priority,
        "key": request.idempotency_key,
        "id": request.job_id,
        "lane": request.lane,
        "metadata": msgspec.json.encode(dict(request.metadata)).decode() if request.metadata else None,
    }
    if request.HasField("run_at"):
        arguments["run_at"] = request.run_at.ToDatetime(tzinfo=UTC)
    if request.HasField("delay"):
        arguments["delay"] = request.delay.ToTimedelta()
    if request.HasField("start_within"):
        arguments["start_within"] = request.start_within.ToTimedelta()
    if request.HasField("max_attempts"):
        name = "default_attempts" if request.max_attempts_is_default else "max_attempts"
        arguments[name] = request.max_attempts
    if request.HasField("unique"):
        unique = request.unique
        arguments |= {
            "unique_key": unique.key,
            "unique_scope": unique.scope,
            "on_conflict": unique.on_conflict,
            "period": unique.period.ToTimedelta() if unique.HasField("period") else None,
            "longest": unique.longest.ToTimedelta() if unique.HasField("longest") else None,
        }
    needed = ("topic", "payload")
    return {name: value for name, value in arguments.items() if name in needed or value not in (None, "", 0)}


def _call_of(function: str, arguments: Mapping[str, Any], verb: str, *, strict: bool) -> Statement:
    """Return the call of this function, with the given arguments alone: a newer function may take more."""
    named = ", ".join(f"{name} => ${place}::{_TYPES[name]}" for place, name in enumerate(arguments, 1))
    columns = "stored::text[]" if "payloads" in arguments else "job_id::text, duplicate, replaced"
    text = f"SELECT {columns} FROM {function}({named}) AS stored"
    return Statement(text, list(arguments.values()), verb, needs_transaction=strict)


Answer = TypeVar("Answer")
AnyJob: TypeAlias = Job[..., ..., Any] | SyncJob[..., ..., Any]


def send(
    connection: Any,
    job: AnyJob | str,
    request: pb.SubmitJobRequest,
    payloads: Sequence[bytes],
    statement: Callable[[], Statement],
    read: Callable[[Row], Answer],
    *,
    wakes: bool,
) -> Any:
    """Run the statement within the middleware of the job's client. Returns the answer, or an awaitable of it.

    The statement is made last: middleware may change the request. With `wakes` the commit wakes servers.
    """
    check_database()
    is_async = connections.is_async(connection)

    async def store() -> Answer:
        if is_async:
            row = await connections.fetch_async(connection, statement())
        else:
            row = connections.fetch(connection, statement())
        if wakes and not isinstance(job, str):
            connections.call_after_commit(connection, job._client._wake)
        return read(row)

    def in_span() -> Coroutine[Any, Any, Answer]:
        return in_enqueue_span(request, len(payloads), store())

    def surrounded() -> Coroutine[Any, Any, Answer]:
        chain = [] if isinstance(job, str) else job._async_middleware
        return surround(chain, [request], payloads, in_span) if chain else in_span()

    blocking: Sequence[EnqueueMiddleware] = (
        job._client._enqueue_middleware if isinstance(job, SyncJob) else []
    )
    if is_async and blocking:
        raise InvalidMiddleware(
            "The middleware of a SyncPulse cannot surround an enqueue with an async connection: use a Pulse."
        )
    if is_async:
        return surrounded()
    if blocking:
        around = Enqueue(request.topic, payloads, dict(request.metadata), request.priority)
        return surround_blocking(blocking, around, lambda: finished(surrounded()))
    return finished(surrounded())


def finished(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine that has nothing to wait for: the connection blocks."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer
    coroutine.close()
    raise InvalidMiddleware(
        "Middleware of enqueue awaited something besides `call_next()`, which the connection of this enqueue "
        "does not allow, since it blocks: use an async connection, or a SyncPulse."
    )


_CALL = (
    "SELECT job_ids::text[], duplicate "
    "FROM pulse.enqueue_workflow(name => $1::text, jobs => $2::jsonb, id => $3::uuid)"
)


def enqueue_workflow(connection: Any, workflow: Workflow | SyncWorkflow, /, *, strict: bool = False) -> Any:
    """Store a workflow in the transaction of the connection. Returns its handle: await it if that is async.

    `workflow` has no block: `workflow = p.workflow("nightly")`, then `workflow.add(…)` as usual. All
    its jobs are stored with your rows, or none. Its jobs have no unique keys here. The rest is as for
    `enqueue`.
    """
    if not isinstance(workflow, Workflow | SyncWorkflow):
        raise InvalidArgument(f"Give a workflow, as p.workflow(…) makes it, not {workflow!r}.")
    check_database()
    client: Any = workflow._client
    topics = workflow._topics()
    is_async = connections.is_async(connection)

    async def store() -> WorkflowHandle | SyncWorkflowHandle:
        values = [workflow.name, _definition(workflow), workflow.id]
        statement = Statement(_CALL, values, "enqueue_workflow", needs_transaction=strict)
        if is_async:
            job_ids, duplicate = await connections.fetch_async(connection, statement)
        else:
            job_ids, duplicate = connections.fetch(connection, statement)
        assert isinstance(client, Pulse)
        connections.call_after_commit(connection, client._wake)
        handle = workflow._handle_of(job_ids, duplicate=duplicate)
        workflow._handle = workflow._wrapped(handle) if isinstance(workflow, SyncWorkflow) else handle
        return workflow.handle

    if not isinstance(workflow, SyncWorkflow):
        storing = surround_topics(client._enqueue_middleware, topics, store)
        return storing if is_async else finished(storing)
    middleware = workflow._blocking._enqueue_middleware
    if not is_async:
        return surround_topics_blocking(middleware, topics, lambda: finished(store()))
    if middleware:
        raise InvalidMiddleware(
            "The middleware of a SyncPulse cannot surround an enqueue with an async connection: use a Pulse."
        )
    return store()


def _definition(workflow: Workflow | SyncWorkflow) -> str:
    return msgspec.json.encode([_job(job) for job in workflow._jobs.values()]).decode()


def _job(job: pb.WorkflowJob) -> dict[str, Any]:
    """Return the job as pulse.enqueue_workflow takes it."""
    request = storable(job.job)
    if request.HasField("unique"):
        raise InvalidArgument(
            f"The job {job.name!r} is unique. Jobs of a workflow in a transaction have no unique keys."
        )
    given: dict[str, Any] = {
        "name": job.name,
        "topic": request.topic,
        "payload_base64": base64.b64encode(request.payload).decode(),
        "after": list(job.after),
        "when": job.when,
        "priority": request.priority,
        "metadata": dict(request.metadata),
        "lane": request.lane,
    }
    if request.HasField("run_at"):
        given["run_at"] = request.run_at.ToDatetime(tzinfo=UTC).isoformat()
    if request.HasField("delay"):
        given["delay"] = request.delay.ToTimedelta().total_seconds()
    if request.HasField("start_within"):
        given["start_within"] = request.start_within.ToTimedelta().total_seconds()
    if request.HasField("max_attempts"):
        name = "default_attempts" if request.max_attempts_is_default else "max_attempts"
        given[name] = request.max_attempts
    return {name: value for name, value in given.items() if value or name == "payload_base64"}
