"""The verbs of a `SyncPulse`: the verbs of `Pulse`, blocking, those of workflows too.

Middleware around its enqueues runs in the thread of the caller. A contextvar carries its changes to the
client's event loop, which applies them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload
from uuid import UUID

from pulse.blocking.bridge import (
    BlockingMethod,
    Bridge,
    SyncHandles,
    SyncJobHandle,
    blocking,
    blocking_generator,
    blocking_pages,
    declaring,
)
from pulse.client import Pulse
from pulse.decorators import Pattern
from pulse.enqueues import encode_items
from pulse.errors import InvalidArgument, InvalidMiddleware
from pulse.handlers.registry import Changes, Enqueue, EnqueueMiddleware, answered, changes_of
from pulse.handlers.signatures import is_coroutine_function
from pulse.handlers.workflows import Node
from pulse.jobs.handles import PartialFailure
from pulse.jobs.submissions import Submission
from pulse.messages import check_items
from pulse.payload import encode
from pulse.schedule_definitions import ScheduleInfo
from pulse.schedules import Schedules
from pulse.v1 import pulse_pb2 as pb
from pulse.workflows import Draft, WorkflowHandle, Workflows, drafted, name_of

Answer = TypeVar("Answer")
# The calls for the topics of a workflow are nested. Some ten frames each stay below Python's limit of 1,000.
_MOST_CALLS = 80
_changes: ContextVar[Changes | None] = ContextVar("pulse.enqueue_changes", default=None)


def check_sync(middleware: object) -> None:
    """Raise InvalidMiddleware unless this can surround the enqueues of a `SyncPulse`."""
    if not callable(middleware) or is_coroutine_function(middleware):
        raise InvalidMiddleware(
            "Middleware of enqueue has to be a plain function of (enqueue, call_next) for a SyncPulse, but "
            f"{middleware!r} was given. Async functions are for a Pulse."
        )


def surround_blocking(
    chain: Sequence[EnqueueMiddleware], enqueue: Enqueue, send: Callable[[], Answer]
) -> Answer:
    """Send the jobs through the middleware. Returns the answer of the server, or raises."""
    given = Enqueue(enqueue.topic, enqueue.payloads, dict(enqueue.metadata), enqueue.priority)

    def apply_and_send() -> Answer:
        before = _changes.set(changes_of(given, enqueue))
        try:
            return send()
        finally:
            _changes.reset(before)

    return _through(chain, enqueue, apply_and_send)


def surround_topics_blocking(
    chain: Sequence[EnqueueMiddleware],
    topics: Sequence[Sequence[pb.SubmitJobRequest]],
    send: Callable[[], Answer],
) -> Answer:
    """Send the jobs of several topics together: through the middleware once for each topic.

    Raises InvalidArgument for more topics than the stack of a thread allows.
    """
    if len(chain) * len(topics) > _MOST_CALLS:
        raise InvalidArgument(
            f"These jobs have {len(topics)} topics, and a SyncPulse has room for {_MOST_CALLS} calls of its "
            "middleware of enqueue at once: use a Pulse, or split the workflow."
        )
    if not chain or not topics:
        return send()
    requests, *others = topics
    first = requests[0]
    payloads = [request.payload for request in requests]
    enqueue = Enqueue(first.topic, payloads, dict(first.metadata), first.priority)

    def apply_and_send() -> Answer:
        given = Enqueue(first.topic, payloads, dict(first.metadata), first.priority)
        changes_of(given, enqueue).apply_to_requests(requests)
        return surround_topics_blocking(chain, others, send)

    return _through(chain, enqueue, apply_and_send)


async def apply_changes(enqueue: Enqueue, call_next: Callable[[], Any]) -> None:
    """Middleware of the async client: makes the changes that were made in the thread of the caller."""
    if (changes := _changes.get()) is not None:
        changes.apply_to(enqueue)
    await call_next()


def _through(chain: Sequence[EnqueueMiddleware], enqueue: Enqueue, send: Callable[[], Answer]) -> Answer:
    if not chain:
        return send()
    answers: list[Answer] = []

    def call_next() -> Answer:
        answers.append(_through(chain[1:], enqueue, send))
        return answers[-1]

    chain[0](enqueue, call_next)
    return answered(answers, chain[0])


R = TypeVar("R")


# ---------------------------------------------------------------- workflows


class SyncWorkflowHandle:
    """A stored workflow of a `SyncPulse`, with `id`, `name`, `jobs` and `duplicate`."""

    def __init__(self, bridge: Bridge, handles: SyncHandles, handle: WorkflowHandle) -> None:
        self._bridge = bridge
        self._handles = handles
        self._async = handle
        self.id = handle.id
        self.name = handle.name
        self.jobs: dict[str, SyncJobHandle[Any]] = {
            name: handles.of(job) for name, job in handle.jobs.items()
        }
        self.duplicate = handle.duplicate

    wait = blocking(WorkflowHandle.wait)
    status = blocking(WorkflowHandle.status)
    cancel = blocking(WorkflowHandle.cancel)
    retry = blocking(WorkflowHandle.retry)

    @overload
    def result(self, job: Node[R], timeout: timedelta | None = None) -> R: ...
    @overload
    def result(self, job: str, timeout: timedelta | None = None) -> Any: ...
    def result(self, job: Node[Any] | str, timeout: timedelta | None = None) -> Any:
        """Wait until a job of the workflow has completed, and return its result. See `JobHandle.result`."""
        return self._bridge.call(WorkflowHandle.result, self._async, job, timeout)

    def job(self, name: str) -> SyncJobHandle[Any]:
        """Return the handle of a job of the workflow, also of one that was added later. Raises NotFound."""
        return self._handles.of(self._bridge.call(WorkflowHandle.job, self._async, name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.name!r})"


class SyncWorkflows:
    """Reads stored workflows, and acts on one. Each is given by its id."""

    def __init__(self, bridge: Bridge, workflows: Workflows, handles: SyncHandles) -> None:
        self._bridge = bridge
        self._async = workflows
        self._handles = handles

    def handle(self, workflow_id: str) -> SyncWorkflowHandle:
        """Return the handle of a workflow that was stored before, to wait for it. Makes no call."""
        return SyncWorkflowHandle(self._bridge, self._handles, self._async.handle(workflow_id))

    get = blocking(Workflows.get)
    cancel = blocking(Workflows.cancel)
    retry = blocking(Workflows.retry)
    list = blocking(Workflows.list)
    iter = blocking_pages(Workflows.iter, Workflows.list)
    jobs = blocking(Workflows.jobs)
    iter_jobs = blocking_pages(Workflows.iter_jobs, Workflows.jobs)


class SyncWorkflow(Draft):
    """A workflow of a `SyncPulse` that is being written. See `Pulse.workflow`."""

    def __init__(
        self,
        client: SyncWorkflowVerbs,
        name: str,
        workflow_id: str | UUID | None,
        timeout: timedelta | None,
    ) -> None:
        super().__init__(client._async, name, workflow_id, timeout)
        self._blocking = client

    @property
    def handle(self) -> SyncWorkflowHandle:
        """The handle of the stored workflow. Raises InvalidArgument before the block has ended."""
        handle: SyncWorkflowHandle = self._stored()
        return handle

    def _store(self) -> None:
        client = self._blocking
        stored = surround_topics_blocking(
            client._enqueue_middleware, self._topics(), lambda: client._bridge.call(self._send)
        )
        self._handle = self._wrapped(stored)

    def _wrapped(self, handle: WorkflowHandle) -> SyncWorkflowHandle:
        return SyncWorkflowHandle(self._blocking._bridge, self._blocking._handles, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._store()


class SyncWorkflowVerbs:
    """How a `SyncPulse` stores workflows."""

    _async: Pulse
    _bridge: Bridge
    _enqueue_middleware: list[EnqueueMiddleware]
    _handles: SyncHandles

    def workflow(
        self, name: str, *, id: str | UUID | None = None, timeout: timedelta | None = None
    ) -> SyncWorkflow:
        """Write a workflow, jobs that wait for jobs: `with p.workflow("nightly") as flow: …`.

        See `Pulse.workflow`.
        """
        return SyncWorkflow(self, name, id, timeout)

    def start(
        self,
        pattern: Pattern,
        *,
        name: str | None = None,
        id: str | UUID | None = None,
        timeout: timedelta | None = None,
    ) -> SyncWorkflowHandle:
        """Store a chain or a group as a workflow: `run = p.start(pulse.chain(fetch.s(url), parse.s()))`.

        See `Pulse.start`.
        """
        workflow = drafted(SyncWorkflow(self, name_of(pattern, name), id, timeout), pattern)
        workflow._store()
        return workflow.handle

    @property
    def workflows(self) -> SyncWorkflows:
        """The verbs for stored workflows: list them, read their jobs, cancel and retry them."""
        return SyncWorkflows(self._bridge, self._async.workflows, self._handles)

    def _job_of_workflow(self, job: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Submission:
        return self._async._job_of_workflow(job, args, kwargs)

    def _surrounded(
        self,
        topics: Sequence[Sequence[pb.SubmitJobRequest]],
        send: Callable[[], Coroutine[Any, Any, R]],
        block: Callable[[Coroutine[Any, Any, R]], R],
    ) -> Any:
        """Send jobs, by topic, through the middleware. It blocks: an async handler gets a thread for it."""
        if not self._enqueue_middleware:
            return self._async._surrounded(topics, send, block)

        def send_blocking() -> R:
            return surround_topics_blocking(self._enqueue_middleware, topics, lambda: block(send()))

        return send_blocking() if asyncio._get_running_loop() is None else asyncio.to_thread(send_blocking)


def _fire(schedules: SyncSchedules, schedule: str | ScheduleInfo, **options: Any) -> SyncJobHandle[Any]:
    handle = schedules._bridge.call(Schedules.fire, schedules._async, schedule, **options)
    return schedules._handles.of(handle)


# ---------------------------------------------------------------- schedules


class SyncSchedules:
    """Manages schedules. Each is given by its id, by its name, or as a ScheduleInfo.

    A string in the form of a UUID is an id. A name costs one more call, to look up the id.
    """

    def __init__(self, bridge: Bridge, schedules: Schedules, handles: SyncHandles) -> None:
        self._bridge = bridge
        self._handles = handles
        self._async = schedules

    get = blocking(Schedules.get)
    list = blocking(Schedules.list)
    iter = blocking_pages(Schedules.iter, Schedules.list)
    update = blocking(Schedules.update)
    reset = blocking(Schedules.reset)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    delete = blocking(Schedules.delete)
    vanished = blocking(Schedules.vanished)
    prune = blocking(Schedules.prune)
    fire = BlockingMethod(Schedules.fire, _fire, "SyncJobHandle[Any]")
    preview = blocking(Schedules.preview)
    status = blocking(Schedules.status)
    jobs = blocking(Schedules.jobs)
    fires = blocking(Schedules.fires)


def _enqueue(client: SyncVerbs, topic: str, args: object = None, **options: Any) -> SyncJobHandle[Any]:
    def send() -> SyncJobHandle[Any]:
        return client._handles.of(client._bridge.call(Pulse.enqueue, client._async, topic, args, **options))

    if not client._enqueue_middleware:
        return send()
    enqueue = _new_enqueue(client, topic, [encode(args)], options)
    return surround_blocking(client._enqueue_middleware, enqueue, send)


def _enqueue_many(
    client: SyncVerbs, topic: str, items: Iterable[object], **options: Any
) -> list[SyncJobHandle[Any]]:
    check_items(items)
    # The items are read here: a generator of the caller has to run in the caller's thread.
    given = list(items)

    def send() -> list[SyncJobHandle[Any]]:
        try:
            handles = client._bridge.call(Pulse.enqueue_many, client._async, topic, given, **options)
        except PartialFailure as error:
            error.handles = [handle and client._handles.of(handle) for handle in error.handles]
            raise
        return [client._handles.of(handle) for handle in handles]

    if not client._enqueue_middleware:
        return send()
    enqueue = _new_enqueue(client, topic, encode_items(given, None), options)
    return surround_blocking(client._enqueue_middleware, enqueue, send)


def _new_enqueue(
    client: SyncVerbs, topic: str, payloads: Sequence[bytes], options: dict[str, Any]
) -> Enqueue:
    priority = options.get("priority")
    if priority is None:
        handler = client._async._handler_of(topic)
        priority = handler.options.priority if handler is not None else 0
    return Enqueue(topic, payloads, dict(options.get("metadata") or {}), priority)


class SyncVerbs(SyncWorkflowVerbs):
    """The verbs of a `SyncPulse` that call the server."""

    _async: Pulse
    _bridge: Bridge
    _enqueue_middleware: list[EnqueueMiddleware]
    _handles: SyncHandles

    def _wake(self) -> None:
        """Wake servers after a commit that has stored jobs. Never raises."""
        self._bridge.call_soon(self._async._wakes.send)

    # ------------------------------------------------------------ jobs

    enqueue = BlockingMethod(Pulse.enqueue, _enqueue, "SyncJobHandle[Any]")
    enqueue_many = BlockingMethod(Pulse.enqueue_many, _enqueue_many, "list[SyncJobHandle[Any]]")

    def handle(self, job_id: str, topic: str = "") -> SyncJobHandle[Any]:
        """Return the handle of a job that was stored before, to wait for it. See `Pulse.handle`."""
        return self._handles.of(self._async.handle(job_id, topic))

    def gather(
        self,
        *handles: SyncJobHandle[R],
        timeout: timedelta | None = None,
        return_exceptions: bool = False,
    ) -> list[R]:
        """Wait for all jobs, and return their results in the order of the handles. See `pulse.gather`."""
        return self._handles.gather(handles, timeout, return_exceptions=return_exceptions)

    def as_completed(
        self, handles: Iterable[SyncJobHandle[R]], *, timeout: timedelta | None = None
    ) -> Generator[SyncJobHandle[R], None, None]:
        """Yield the handles in the order in which their jobs finish. See `pulse.as_completed`."""
        return self._handles.as_completed(handles, timeout)

    get_job = blocking(Pulse.get_job)
    list_jobs = blocking(Pulse.list_jobs)
    iter_jobs = blocking_pages(Pulse.iter_jobs, Pulse.list_jobs)
    find_jobs = blocking(Pulse.find_jobs)
    search_jobs = blocking(Pulse.search_jobs)
    cancel = blocking(Pulse.cancel)
    retry = blocking(Pulse.retry)
    signal = blocking(Pulse.signal)
    steps = blocking(Pulse.steps)
    prioritize = blocking(Pulse.prioritize)
    delete = blocking(Pulse.delete)

    # ------------------------------------------------------------ selections

    count_jobs = blocking(Pulse.count_jobs)
    cancel_batch = blocking(Pulse.cancel_batch)
    retry_batch = blocking(Pulse.retry_batch)
    prioritize_batch = blocking(Pulse.prioritize_batch)
    delete_batch = blocking(Pulse.delete_batch)
    cancel_matching = blocking_generator(Pulse.cancel_matching)
    retry_matching = blocking_generator(Pulse.retry_matching)
    prioritize_matching = blocking_generator(Pulse.prioritize_matching)
    delete_matching = blocking_generator(Pulse.delete_matching)
    undo = blocking(Pulse.undo)
    undo_batch = blocking(Pulse.undo_batch)
    export_jobs = blocking_generator(Pulse.export_jobs)
    follow_verdicts = blocking_generator(Pulse.follow_verdicts)

    # ------------------------------------------------------------ schedules

    schedule = blocking(Pulse.schedule)
    every = declaring(Pulse.every)
    cron = declaring(Pulse.cron)
    declare = blocking(Pulse.declare)

    @property
    def schedules(self) -> SyncSchedules:
        """The verbs for stored schedules: list, update, pause, fire and delete them."""
        return SyncSchedules(self._bridge, self._async.schedules, self._handles)

    # ------------------------------------------------------------ dispatch

    pause = blocking(Pulse.pause)
    resume = blocking(Pulse.resume)
    dispatch_status = blocking(Pulse.dispatch_status)
    quiet_worker = blocking(Pulse.quiet_worker)
    resume_worker = blocking(Pulse.resume_worker)
    stop_worker = blocking(Pulse.stop_worker)

    # ------------------------------------------------------------ topics

    set_topic = blocking(Pulse.set_topic)
    reset_topic = blocking(Pulse.reset_topic)
    topic_settings = blocking(Pulse.topic_settings)
    all_topic_settings = blocking(Pulse.all_topic_settings)
    limits = blocking(Pulse.limits)
    lanes = blocking(Pulse.lanes)
    set_lane = blocking(Pulse.set_lane)
    hold = blocking(Pulse.hold)

    # ------------------------------------------------------------ overview

    topics = blocking(Pulse.topics)
    list_topics = blocking(Pulse.list_topics)
    workers = blocking(Pulse.workers)
    servers = blocking(Pulse.servers)
    dead_letters = blocking(Pulse.dead_letters)
    explain = blocking(Pulse.explain)
    explain_jobs = blocking(Pulse.explain_jobs)
    explain_topic = blocking(Pulse.explain_topic)
    findings = blocking(Pulse.findings)
    statistics = blocking(Pulse.statistics)
    watch = blocking_generator(Pulse.watch)

    audit = blocking(Pulse.audit)

    # ------------------------------------------------------------ access

    whoami = blocking(Pulse.whoami)
