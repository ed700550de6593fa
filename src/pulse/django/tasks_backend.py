"""A backend for `django.tasks`: its tasks are jobs of pulse, and their results are read from the jobs.

    TASKS = {"default": {"BACKEND": "pulse.django.tasks_backend.PulseBackend"}}

A task has a topic for each queue, such as `default:shop.tasks.send_receipt`: options and settings of
pulse belong to a topic, so each task has its own. `pulse_worker --topics 'mail:*'` serves the queue mail.
The framework is `django.tasks` from Django 6 on, the package django-tasks before.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Literal, TypedDict, cast
from uuid import UUID

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from pulse import sql
from pulse.connections import call_after_commit
from pulse.django.clients import checked, client, configured
from pulse.errors import InvalidArgument, NotFound
from pulse.handlers.context import Context
from pulse.handlers.handler import JobOptions, RetryDelay, make_options
from pulse.handlers.registry import is_topic
from pulse.handlers.signatures import SyncContext
from pulse.ids import uuid7
from pulse.jobs.models import Attempt, JobInfo, JobStatus, Unique
from pulse.outcomes import Snooze, TimedOut, is_cancelled, suspension_in
from pulse.topic_settings import Backoff, Rate
from pulse.worker.outcomes import is_discarded

if django.VERSION >= (6, 0):
    from django.tasks import base, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import base, signals, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImportError(
            "pulse.django.tasks_backend needs Django 6, or the package django-tasks: pip install django-tasks"
        ) from error

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "base",
    "normalize_json",
    "signals",
    "task_backends",
]

_Status = base.TaskResultStatus
_STATUSES = {
    JobStatus.PENDING: _Status.READY,
    JobStatus.RETRYING: _Status.READY,
    JobStatus.RUNNING: _Status.RUNNING,
    JobStatus.COMPLETED: _Status.SUCCESSFUL,
    JobStatus.DEAD_LETTERED: _Status.FAILED,
    JobStatus.CANCELED: _Status.FAILED,
}
# Runs with these outcomes are no failures, and cost no attempt.
_NO_FAILURES = ("snoozed", "suspended")
# The errors of attempts whose stored text has no class.
_CLASS_PATHS = {
    "discarded": "pulse.Discard",
    "lease_expired": "pulse.ClaimLost",
    "canceled": "pulse.JobCanceled",
}


class NotJson(TypeError):
    """A task returned a value that is not JSON. A further attempt would return the same."""


# The class that Django's own backends have for it.
_AS_IN_DJANGO = {f"{NotJson.__module__}.{NotJson.__qualname__}": "builtins.TypeError"}


# Of a job that has one. Not in the payload: a repeat with the same key has to have the same payload.
_RUN_AFTER = "run_after"


class Arguments(TypedDict, total=False):
    """The payload of the job of a task. A schedule may leave it out."""

    args: list[Any]
    kwargs: dict[str, Any]


def arguments_of(result: Any) -> Arguments:
    """Return the payload of the job of a result."""
    return {"args": result.args, "kwargs": result.kwargs}


def metadata_of(task: Any, given: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a job of the task: what was given, and its start time."""
    return {**given, **({} if task.run_after is None else {_RUN_AFTER: task.run_after.isoformat()})}


def new_result(task: Any, job_id: str, args: Any, kwargs: Any, **known: Any) -> Any:
    """Return the result of a task that has not run. Raises TypeError for an argument that is not JSON."""
    times = dict.fromkeys(("enqueued_at", "started_at", "last_attempted_at", "finished_at"))
    empty = {"status": _Status.READY, "errors": [], "worker_ids": []}
    return base.TaskResult(
        task=task, id=job_id, args=args, kwargs=kwargs, backend=task.backend, **(times | empty | known)
    )


def running_result(task: Any, context: Context, arguments: Arguments) -> Any:
    """Return the result of a task that starts here.

    The workers of earlier attempts are empty, because a worker is not sent them, and a schedule's job has no
    `enqueued_at`: `refresh` reads both.
    """
    now = timezone.now()
    earlier = [""] * (context.attempt - 1)
    return new_result(
        _as_enqueued(task, context),
        context.job_id,
        arguments.get("args", []),
        arguments.get("kwargs", {}),
        status=_Status.RUNNING,
        enqueued_at=_time_of(context.job_id),
        started_at=now,
        last_attempted_at=now,
        worker_ids=[*earlier, getattr(context._steps, "worker_id", "")],
    )


def stored_result(task: Any, job: JobInfo) -> Any:
    """Return the result of a task by its job."""
    arguments = job.args or {}
    runs = [past for past in job.history if past.outcome not in _NO_FAILURES]
    result = new_result(
        _as_enqueued(task, job),
        job.id,
        arguments.get("args", []),
        arguments.get("kwargs", {}),
        status=_STATUSES[job.status],
        enqueued_at=local(job.submitted_at),
        started_at=local(runs[0].started_at if runs else job.started_at),
        last_attempted_at=local(job.started_at),
        finished_at=local(job.finished_at),
        errors=_errors(job, runs),
        worker_ids=_worker_ids(job, runs),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def _as_enqueued(task: Any, job: JobInfo | Context) -> Any:
    """Return the task with the queue, the priority and the start time of a job."""
    changes: dict[str, Any] = {"queue_name": job.topic.rpartition(":")[0], "priority": job.priority}
    if _RUN_AFTER in job.metadata:
        changes["run_after"] = datetime.fromisoformat(job.metadata[_RUN_AFTER])
    return changed(task, **changes)


def changed(task: Any, **changes: Any) -> Any:
    """Return the task with these values. They are not validated, unlike those of `using`.

    A stored job may have what no task may have: an operator's priority, a queue that was removed from QUEUES.
    """
    if all(getattr(task, name) == value for name, value in changes.items()):
        return task
    made = object.__new__(type(task))
    for each in fields(task):
        value = changes[each.name] if each.name in changes else getattr(task, each.name)
        object.__setattr__(made, each.name, value)
    return made


def local(moment: datetime | None) -> datetime | None:
    """Return a time of pulse as Django has times: without a time zone if USE_TZ is off."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _time_of(job_id: str) -> datetime | None:
    """Return when the id was made, if it is a UUIDv7, as those of this backend are.

    It begins with the milliseconds of its time. The ids of a schedule's jobs have no time.
    """
    id_ = UUID(job_id)
    return local(datetime.fromtimestamp((id_.int >> 80) / 1000, UTC)) if id_.version == 7 else None


def _worker_ids(job: JobInfo, runs: list[Attempt]) -> list[str]:
    """Return a worker for each attempt. Empty for attempts that the history no longer has."""
    known = {past.attempt: past.worker_id for past in runs}
    if job.worker_id:
        known[job.attempts] = job.worker_id
    return [known.get(attempt, "") for attempt in range(1, job.attempts + 1)]


def raised_error(error: BaseException) -> Any:
    """Return an error of a task as Django keeps it."""
    kind = type(error)
    return _error_of(f"{kind.__module__}.{kind.__qualname__}", "".join(traceback.format_exception(error)))


def _errors(job: JobInfo, runs: list[Attempt]) -> list[Any]:
    """Return the error of each attempt that failed. The job has the last one in full."""
    errors = [_stored_error(past, past.outcome) for past in runs]
    if runs and job.last_error is not None and job.last_error.startswith(runs[-1].error):
        errors[-1] = _stored_error(job, runs[-1].outcome)
    if job.status is JobStatus.CANCELED and not (runs and runs[-1].outcome == "canceled"):
        errors.append(_error_of(_CLASS_PATHS["canceled"], job.last_error or ""))  # before it started
    return errors


def _stored_error(failed: JobInfo | Attempt, outcome: str) -> Any:
    text = failed.error if isinstance(failed, Attempt) else failed.last_error or ""
    path = failed.error_class or _CLASS_PATHS.get(outcome, "builtins.Exception")
    return _error_of(path, failed.traceback or text)


def _error_of(path: str, text: str) -> Any:
    return base.TaskError(exception_class_path=_AS_IN_DJANGO.get(path, path), traceback=text)


# ---------------------------------------------------------------- task calls
# Runs the tasks of Django as handlers of pulse.


def handler_of(task: Any, sender: type) -> Callable[..., Any]:
    """Return the handler that runs the task. `sender` sends the signals of Django."""

    def call(context: SyncContext, args: Arguments | None = None) -> Any:
        result = running_result(task, context, args or {})
        signals.task_started.send_robust(sender, task_result=result)
        try:
            value = _as_json(task.func(*_arguments(task, result), **result.kwargs))
        except BaseException as error:
            if _is_final(error, context):
                signals.task_finished.send_robust(sender, task_result=_ended(result, error=error))
            raise
        signals.task_finished.send_robust(sender, task_result=_ended(result, value))
        return value

    async def acall(context: Context, args: Arguments | None = None) -> Any:
        result = running_result(task, context, args or {})
        await signals.task_started.asend_robust(sender, task_result=result)
        try:
            value = _as_json(await task.func(*_arguments(task, result), **result.kwargs))
        except BaseException as error:
            if _is_final(error, context):
                # Not asend_robust, which calls receivers in new tasks: Django's own logs the current error.
                await sync_to_async(signals.task_finished.send_robust)(
                    sender, task_result=_ended(result, error=error)
                )
            raise
        await signals.task_finished.asend_robust(sender, task_result=_ended(result, value))
        return value

    handler = acall if iscoroutinefunction(task.func) else call
    # Messages, and the child processes of handlers with process=True, find the task by these.
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(handler, name, getattr(task.func, name))
    return handler


def _is_final(error: BaseException, context: Context) -> bool:
    """True if the task has failed for good: it is not retried, and was not stopped or suspended."""
    if isinstance(error, TimedOut):
        return context.is_last_attempt
    if isinstance(error, Snooze) or is_cancelled(error) or suspension_in(error) is not None:
        return False
    if isinstance(error, asyncio.CancelledError) or context.cancelled:
        return False
    handler = client()._registry.get(context.topic)
    return context.is_last_attempt or (handler is not None and is_discarded(error, handler.options))


def _ended(result: Any, value: Any = None, error: BaseException | None = None) -> Any:
    """Return the result with the outcome of its attempt."""
    failed = error is not None
    changes = {
        "status": _Status.FAILED if failed else _Status.SUCCESSFUL,
        "finished_at": timezone.now(),
        "_return_value": value,
        "errors": [raised_error(error)] if error is not None else [],
    }
    for name, value in changes.items():
        object.__setattr__(result, name, value)
    return result


def _as_json(value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        raise NotJson(f"The task returned a value that cannot be stored: {error}") from None


def _arguments(task: Any, result: Any) -> list[Any]:
    return [base.TaskContext(task_result=result), *result.args] if task.takes_context else result.args


# ---------------------------------------------------------------- pulse task
# Tasks with the options of a handler and of an enqueue, and the decorator that makes them.


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)  # the options would hide the task
class PulseTask(base.Task):
    """A task of Django with options of pulse. None: the default of the backend's OPTIONS, or of pulse."""

    # The options of a handler: see docs/handlers.md.
    max_attempts: int | None = None
    timeout: timedelta | None = None
    retry: Backoff | RetryDelay | None = None
    retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None
    discard_on: type[BaseException] | tuple[type[BaseException], ...] | None = None
    start_within: timedelta | None = None
    unique: Unique | Literal[False] | None = None
    process: bool | None = None
    running: int | None = None
    rate: Rate | None = None
    pool: str | None = None
    per_lane: int | None = None
    lane_rate: Rate | None = None
    turns: bool | None = None
    ordered: bool | None = None
    aging: timedelta | None = None

    # Of one job: `task.using(lane="customer-7").enqueue(…)`.
    lane: str | None = None
    key: str | None = None
    metadata: Mapping[str, str] | None = field(default=None, hash=False)

    # Not super(): a dataclass with slots is another class than the one that super() would look for.
    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> PulseTask:
        """Return the task with other options of its job, those of pulse included."""
        if unknown := sorted(options.keys() - set(ENQUEUE_OPTIONS)):
            raise TypeError(
                f"using() has no option {unknown[0]!r}. It has {', '.join(ENQUEUE_OPTIONS)}; the options of "
                "a handler are given to the decorator, @task(timeout=…)."
            )
        given = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        options |= {name: value for name, value in given.items() if value is not None}
        return replace(self, **options)


ENQUEUE_OPTIONS = ("max_attempts", "start_within", "unique", "lane", "key", "metadata")
_OF_ONE_JOB = ("lane", "key", "metadata")
HANDLER_OPTIONS = tuple(
    one.name
    for one in fields(PulseTask)
    if one.name not in _OF_ONE_JOB and one.name not in {own.name for own in fields(base.Task)}
)


def options_of(task: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of these names that are set. A task of another backend's class has none."""
    values = {name: getattr(task, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    priority: int = base.DEFAULT_TASK_PRIORITY,
    queue_name: str = base.DEFAULT_TASK_QUEUE_NAME,
    backend: str = base.DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """Make a task of the function, as `django.tasks.task` does, with the options of pulse.

    Django's own decorator takes them too, from Django 6.1 on. Another backend, such as that of the tests,
    ignores them.
    """

    def make(of: Callable[..., Any]) -> Any:
        theirs = task_backends[backend].task_class
        return (PulseTask if theirs is base.Task else theirs)(
            func=of,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **options,
        )

    return make if function is None else make(function)


# ---------------------------------------------------------------- tasks backend

logger = logging.getLogger("pulse.django")

_WHEN = ("now", "on_commit", "transaction")

_tasks: dict[str, Any] = {}
"""The tasks that were made for a backend of this class, by module path: the first of each."""


class PulseBackend(BaseTaskBackend):
    """Enqueues tasks as jobs of pulse. OPTIONS are `ENQUEUE`, and defaults of the options of handlers."""

    task_class = PulseTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._defaults = {name: value for name, value in self.options.items() if name != "ENQUEUE"}
        self.when = self.options.get("ENQUEUE", "now")
        try:
            make_options(cast("JobOptions", self._defaults))
            if self.when not in _WHEN:
                raise InvalidArgument(f"ENQUEUE has to be one of {', '.join(_WHEN)}, not {self.when!r:.80}.")
        except InvalidArgument as error:
            raise ImproperlyConfigured(f'TASKS[{alias!r}]["OPTIONS"] cannot be used: {error}') from None

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask for a task that cannot be enqueued. Registers the handlers of a new task."""
        super().validate_task(task)
        topic = _topic(task.queue_name, task.module_path)
        if not is_topic(topic):
            raise InvalidTask(
                f"The topic {topic!r} of this task is not allowed: use letters, digits and . _ - in the "
                "names of its queue, module and function, at most 255 characters together."
            )
        try:
            make_options(cast("JobOptions", self._of_handler(task)))
        except InvalidArgument as error:
            raise InvalidTask(error.message) from None
        if task.module_path not in _tasks:
            self._register(task)

    def _register(self, task: Any) -> None:
        _tasks[task.module_path] = task
        if client()._registry.is_serving:
            logger.warning(
                "The task %s was imported after this worker had started, which does not run it: import its "
                "module in the tasks.py of an app.",
                task.module_path,
            )
            return
        handler = handler_of(task, type(self))
        # `using` may choose any backend. The first one of a queue has the options.
        by_queue: dict[str, PulseBackend] = {}
        for backend in (self, *_backends()):
            for queue in sorted(backend.queues | ({task.queue_name} if backend is self else set())):
                by_queue.setdefault(queue, backend)
        for queue, backend in by_queue.items():
            topic = _topic(queue, task.module_path)
            if not is_topic(topic):
                continue  # pulse.E003 reports the queue, and validate_task refuses the task on it
            options = backend._of_handler(task)
            given = options.get("discard_on", configured().defaults.get("discard_on", ()))
            options["discard_on"] = (*(given if isinstance(given, tuple | list) else (given,)), NotJson)
            client().register(topic, handler, **options)

    def _of_handler(self, task: Any) -> dict[str, Any]:
        options = self._options(task, HANDLER_OPTIONS)
        if options.get("unique") is False:
            del options["unique"]  # of one job
        return options

    def _options(self, task: Any, names: tuple[str, ...]) -> dict[str, Any]:
        defaults = {name: self._defaults[name] for name in names if name in self._defaults}
        return defaults | options_of(task, names)

    # ------------------------------------------------------------ enqueue

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job that runs the task: at once, or as OPTIONS["ENQUEUE"] says."""
        self.validate_task(task)
        result = new_result(task, uuid7(), args, kwargs)
        options = self._of_job(result)
        if self.when == "now":
            self._send(result, options)
        elif self.when == "on_commit":
            checked(client(), *_job(result), options)
            transaction.on_commit(partial(self._send, result, options), using=configured().database)
        else:
            self._insert(result, options)
        return result

    def _send(self, result: Any, options: dict[str, Any]) -> None:
        self._stored(result, client().enqueue_now(*_job(result), **options))
        signals.task_enqueued.send(type(self), task_result=result)

    def _insert(self, result: Any, options: dict[str, Any]) -> None:
        connection = transaction.get_connection(configured().database)
        self._stored(result, sql.enqueue(connection, *_job(result), **options))
        # Not in a transaction by hand: Django does not report its commit, and servers look regularly.
        call_after_commit(connection, client()._wake)
        signals.task_enqueued.send(type(self), task_result=result)

    def _of_job(self, result: Any) -> dict[str, Any]:
        task, options = result.task, self._options(result.task, ENQUEUE_OPTIONS)
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        metadata = metadata_of(task, options.pop("metadata", {}))
        return options | {
            "job_id": result.id,
            "priority": task.priority,
            "run_at": run_after,
            "metadata": metadata,
        }

    def _stored(self, result: Any, handle: Any) -> None:
        submitted_at = local(getattr(handle, "submitted_at", None)) or timezone.now()
        object.__setattr__(result, "enqueued_at", submitted_at)
        object.__setattr__(result, "id", handle.id)  # of another job, if that has the key

    # ------------------------------------------------------------ results

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task by the id of its job. Raises TaskResultDoesNotExist."""
        try:
            return self._result(client().get_job(result_id))
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None

    def _result(self, job: JobInfo) -> Any:
        path = job.topic.rpartition(":")[2]
        task = _tasks.get(path)
        if task is None:
            try:
                task = import_string(path)
            except Exception:  # the module runs, and it may be any: topics are given by producers
                raise TaskResultDoesNotExist(job.id) from None
        if not isinstance(task, base.Task):
            raise TaskResultDoesNotExist(job.id)
        return stored_result(changed(task, backend=self.alias), job)

    # ------------------------------------------------------------ checks

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Return the problems of this backend that `manage.py check` reports."""
        from pulse.django.apps import check_backend

        return check_backend(self)


def _backends() -> Iterator[PulseBackend]:
    """Yield the backends of TASKS that are of pulse. Any other may be broken: it reports that itself."""
    for alias in task_backends:
        with suppress(InvalidTaskBackend, ImproperlyConfigured):
            if isinstance(backend := task_backends[alias], PulseBackend):
                yield backend


def _topic(queue: str, path: str) -> str:
    return f"{queue}:{path}"


def _job(result: Any) -> tuple[str, Arguments]:
    """Return the topic and the payload of the job of a result."""
    return _topic(result.task.queue_name, result.task.module_path), arguments_of(result)
