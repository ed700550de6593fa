"""Tasks with the options of a handler and of an enqueue, and the decorator that makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from pulse.django.task_framework import base, task_backends
from pulse.handlers.options import RetryDelay
from pulse.models.unique import Unique
from pulse.topic_settings import Backoff, Rate


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
