"""Celery's calls for jobs of pulse: `task.delay(…)` and `task.apply_async(…)`. Celery is not needed.

    app = pulse.celery.Tasks(pulse.SyncPulse())

    @app.task(queues=["bulk"], max_attempts=5)
    def send_mail(to: str) -> None: ...

    send_mail.delay("ada@example.org")
    send_mail.apply_async(["ada@example.org"], countdown=60, queue="bulk")

A task can move to pulse before its callers change: docs/how-to/from-celery.md. New code calls `enqueue`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar, Unpack, cast, overload

from pulse.blocking.bridge import SyncJobHandle
from pulse.blocking.client import SyncJob, SyncPulse, SyncRouter
from pulse.blocking.verbs import SyncVerbs
from pulse.decorators import C, P, R
from pulse.errors import InvalidArgument, InvalidHandler
from pulse.handlers.handler import Handler, JobOptions, make_options
from pulse.jobs.submissions import EnqueueOptions
from pulse.messages import LONGEST, check_aware

__all__ = ["Task", "Tasks"]

Returned = TypeVar("Returned")


def _by_name(ways: Mapping[str, str]) -> Mapping[str, str]:
    return {name: way for names, way in ways.items() for name in names.split()}


# Options of Celery, and what to write instead.
_OF_BOTH = {
    "exchange routing_key": 'Use queues=["bulk"] of the task, and queue="bulk" of the call.',
    "ignore_result": "Leave it out: a handler that returns None stores no result.",
    "serializer compression": "Leave it out: arguments and results are stored as JSON.",
    "time_limit soft_time_limit": "Use @app.task(timeout=timedelta(…)), which ends an attempt.",
}
_OF_TASKS = _by_name(
    _OF_BOTH
    | {
        "acks_late acks_on_failure_or_timeout acks_on_failure acks_on_timeout reject_on_worker_lost": (
            "Leave it out: a job is completed after its handler, and runs again if its worker dies."
        ),
        "autoretry_for": "Leave it out: every error is retried. retry_on=(…) limits this to some errors.",
        "base": "Use middleware and resources of the client.",
        "bind": "Use a parameter `ctx: pulse.SyncContext` in place of self: it has the id and the attempt.",
        "default_retry_delay retry_backoff retry_backoff_max retry_jitter": (
            "Use retry=pulse.Backoff(first=…, factor=…, longest=…, jitter=…)."
        ),
        "dont_autoretry_for throws": "Use discard_on=(…): these errors make the job a dead letter at once.",
        "expires": "Use start_within=timedelta(…).",
        "max_retries": "Use max_attempts: it counts the first attempt too, so it is one more.",
        "queue": 'Use queues=["bulk"], and queue="bulk" of the call.',
        "rate_limit": "Use rate=pulse.Rate(100, per=timedelta(minutes=1)), which counts over all workers.",
        "retry_kwargs": "Use max_attempts and retry=pulse.Backoff(…).",
        "track_started": "Leave it out: the status of a job is RUNNING from the start of its handler on.",
    }
)
_OF_CALLS = _by_name(
    _OF_BOTH
    | {
        "headers": "Use task.options(metadata={…}).apply_async(…).",
        "link": "Use a workflow: p.start(pulse.chain(first.s(…), second.s())).",
        "link_error": 'Use a workflow with a job that has when="failed".',
        "retry retry_policy": "Leave it out: a submit is repeated until the timeout of the client.",
        "task_id": "Use task.options(key=…).apply_async(…): a repeat with the same key stores nothing.",
    }
)


class Task(SyncJob[P, C, R]):
    """A handler that callers of Celery's tasks can call. It has the verbs of a `SyncJob` too."""

    def __init__(
        self,
        client: SyncVerbs,
        handler: Handler,
        options: EnqueueOptions | None = None,
        queues: Mapping[str, Handler] | None = None,
    ) -> None:
        super().__init__(client, handler, options)
        self.name = self.topic
        self._queues = queues or {}

    delay = SyncJob.enqueue

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: float | None = None,
        eta: datetime | None = None,
        expires: float | datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        **unknown: object,
    ) -> SyncJobHandle[Any]:
        """Store a job that will call the handler with these arguments.

        Numbers are seconds, as with Celery. `expires` counts from now. A higher `priority` runs first. The
        job goes to the topic `queue.name`. Raises InvalidArgument for any other option of Celery.
        """
        for name in unknown:
            way = _OF_CALLS.get(name, "It has countdown, eta, expires, priority and queue.")
            raise InvalidArgument(f"apply_async of pulse.celery has no option {name!r}. {way}")
        options = _times(countdown, eta, expires)
        if priority is not None:
            options["priority"] = priority
        return self._in(queue).options(**options).enqueue(*(args or ()), **(kwargs or {}))

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return this task with options of pulse: `task.options(key="welcome-ada").delay(…)`."""
        return type(self)(self._client, self._handler, self._added(options), self._queues)

    def _in(self, queue: str | None) -> SyncJob[..., ..., Any]:
        if queue is None:
            return self
        handler = self._queues.get(queue)
        if handler is None:
            raise InvalidArgument(
                f"The task {self.name} has no queue {queue!r}, so no worker would run the job. Declare it: "
                f"@app.task(queues=[{queue!r}])."
            )
        return SyncJob(self._client, handler, self._options)


class Tasks:
    """Declares tasks as Celery's application does, with the handlers in a `SyncPulse` or a `SyncRouter`."""

    def __init__(self, handlers: SyncPulse | SyncRouter, /) -> None:
        if not isinstance(handlers, SyncPulse | SyncRouter):
            raise InvalidHandler(
                f"pulse.celery.Tasks takes a pulse.SyncPulse or a pulse.SyncRouter, but {handlers!r} was "
                "given: delay blocks. In asyncio declare handlers with @p.job and await job.enqueue(…)."
            )
        self._handlers = handlers

    @overload
    def task(self, function: Callable[..., Returned], /) -> Task[..., ..., Returned]: ...
    @overload
    def task(
        self, /, *, name: str | None = None, queues: Iterable[str] = (), **options: Unpack[JobOptions]
    ) -> Callable[[Callable[..., Returned]], Task[..., ..., Returned]]: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queues: Iterable[str] = (),
        **options: Any,
    ) -> Any:
        """Register the decorated function as the handler of the topic `name`, and of one topic per queue.

        The name defaults to module.function, as in Celery. The options are those of `p.job`. A limit or a
        rate holds for each topic; with `pool` it holds for all queues together.
        """
        for option in options:
            if option in _OF_TASKS:
                raise InvalidArgument(f"A task of pulse.celery has no option {option!r}. {_OF_TASKS[option]}")
        checked = make_options(cast("JobOptions", options))
        names = sys._getframe(1).f_locals
        known = dict.fromkeys([queues] if isinstance(queues, str) else queues)

        def register(function: Callable[..., Any]) -> Task[..., ..., Any]:
            topic = name or _name_of(function)
            job, *others = (
                self._handlers._register(each, function, names, checked)
                for each in (topic, *(f"{queue}.{topic}" for queue in known))
            )
            handlers = (other._handler for other in others)
            return Task(job._client, job._handler, None, dict(zip(known, handlers, strict=True)))

        return register if function is None else register(function)


def _times(countdown: float | None, eta: datetime | None, expires: float | datetime | None) -> EnqueueOptions:
    """Return the start and the expiry as options of an enqueue, which counts the expiry from the start."""
    if countdown is not None and eta is not None:
        raise InvalidArgument("Give countdown or eta, not both: each sets when the job may start.")
    now = datetime.now(UTC)
    start = now
    options: EnqueueOptions = {}
    if countdown is not None:
        options["delay"] = delay = max(_seconds("countdown", countdown), timedelta(0))
        start = now + delay
    if eta is not None:
        options["run_at"] = start = _moment("eta", eta)
    if expires is not None:
        is_moment = isinstance(expires, datetime)
        end = _moment("expires", expires) if is_moment else now + _seconds("expires", expires)
        if end <= max(start, now):
            raise InvalidArgument(f"The job would expire before it may start: expires={expires!r}.")
        options["start_within"] = end - start
    return options


def _seconds(name: str, value: object) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} has to be a number of seconds, but {value!r} was given.")
    if not abs(value) <= LONGEST.total_seconds():  # also for a NaN
        raise InvalidArgument(f"{name} has to be at most {LONGEST.days} days, but {value!r} s were given.")
    return timedelta(seconds=value)


def _moment(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{name} has to be a datetime, but {value!r} was given.")
    check_aware(name, value)
    return value


def _name_of(function: Callable[..., Any]) -> str:
    if function.__module__ == "__main__":
        raise InvalidHandler(
            f"{function.__name__} is in the program that runs, so its module has another name in other "
            f'programs. Give the task a name: @app.task(name="shop.{function.__name__}").'
        )
    return f"{function.__module__}.{function.__name__}"
