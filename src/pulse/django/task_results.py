"""Jobs as results of Django's tasks."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypedDict
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from pulse.django.task_framework import base
from pulse.handlers.context import Context
from pulse.jobs.models import Attempt, JobInfo, JobStatus

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
    for field in fields(task):
        value = changes[field.name] if field.name in changes else getattr(task, field.name)
        object.__setattr__(made, field.name, value)
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
