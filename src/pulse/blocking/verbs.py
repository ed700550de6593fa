"""The verbs of a `SyncPulse`: the verbs of `Pulse`, blocking."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pulse.blocking.bridge import Bridge
from pulse.blocking.enqueue_middleware import surround_blocking
from pulse.blocking.handles import SyncHandles, SyncJobHandle
from pulse.blocking.methods import BlockingMethod, blocking, blocking_generator, blocking_pages, declaring
from pulse.blocking.workflows import SyncWorkflowVerbs
from pulse.client import Pulse
from pulse.enqueues import encode_items
from pulse.handlers.registry import Enqueue, EnqueueMiddleware
from pulse.jobs.handles import PartialFailure
from pulse.messages import check_items
from pulse.payload import encode
from pulse.schedule_definitions import ScheduleInfo
from pulse.schedules import Schedules


def _fire(schedules: SyncSchedules, schedule: str | ScheduleInfo, **options: Any) -> SyncJobHandle[Any]:
    handle = schedules._bridge.call(Schedules.fire, schedules._async, schedule, **options)
    return schedules._handles.of(handle)


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


R = TypeVar("R")


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
