"""Finds jobs by topic and arguments, and lists them in the text of an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pulse.payload import decode_json, encode
from pulse.testing.server import view
from pulse_server.domain.jobs import Job

_MOST_LISTED = 20


class HasTopic(Protocol):
    """A job of the application: the object that `@p.job` returns."""

    @property
    def topic(self) -> str: ...


@runtime_checkable
class TaskOfDjango(Protocol):
    """A task of `django.tasks`, or of its backport."""

    @property
    def module_path(self) -> str: ...

    @property
    def func(self) -> Callable[..., Any]: ...

    @property
    def takes_context(self) -> bool: ...


AnyJob: TypeAlias = str | HasTopic | TaskOfDjango


class HasId(Protocol):
    """A JobInfo, or the handle that an enqueue returns."""

    @property
    def id(self) -> str: ...


def matching(rows: Iterable[Job], job: AnyJob | None, args: Mapping[str, Any]) -> list[Job]:
    """Return the jobs of the topic that have these arguments, as JSON has them."""
    wanted = {name: decode_json(encode(value)) for name, value in args.items()}
    return [row for row in rows if _is_of(row, job) and (not wanted or _has(_args(row, job), wanted))]


def _is_of(row: Job, job: AnyJob | None) -> bool:
    if isinstance(job, TaskOfDjango):
        return row.topic.rpartition(":")[2] == job.module_path  # in any queue
    return job is None or row.topic == _topic(job)


def _args(row: Job, job: AnyJob | None) -> Any:
    args = view(row).args
    if not isinstance(job, TaskOfDjango) or not isinstance(args, dict):
        return args
    names = list(inspect.signature(job.func).parameters)[job.takes_context :]
    return {**dict(zip(names, args.get("args", ()), strict=False)), **args.get("kwargs", {})}


def _has(args: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(args, dict) and all(name in args and args[name] == wanted[name] for name in wanted)


def id_of(job: str | HasId) -> str:
    """Return the id of a job. Raises AssertionError for anything else."""
    found = job if isinstance(job, str) else getattr(job, "id", None)
    if not isinstance(found, str):
        raise AssertionError(
            "This takes one job that was enqueued: its handle, its JobInfo or its id, not "
            f"{_described(job)}. pulse_kit.one(job) finds it."
        )
    return found


def _topic(job: AnyJob) -> str:
    if isinstance(job, TaskOfDjango):
        return job.module_path
    topic = job if isinstance(job, str) else getattr(job, "topic", None)
    if not isinstance(topic, str):
        raise AssertionError(
            f"This takes a job of the application, not {_described(job)}: the object that @p.job or "
            "p.register returned, its topic, or a task of Django."
        )
    return topic


def _described(given: object) -> str:
    """Return what a test has given, in the text of an error."""
    if inspect.isfunction(given):
        return f"the function {given.__qualname__}"
    return f"{given!r:.80}"


def asked(job: AnyJob | None, args: Mapping[str, Any]) -> str:
    """Return what a test looked for, in the text of an error."""
    given = ", ".join(f"{name}={value!r}" for name, value in args.items())
    return f"{'any topic' if job is None else _topic(job)}({given})"


def listed(rows: list[Job]) -> str:
    """Return the jobs, one in each line, for the text of an error."""
    if not rows:
        return " nothing."
    lines = [f"\n  {row.topic} {view(row).args!r:.200} {row.status.value}" for row in rows[:_MOST_LISTED]]
    more = len(rows) - len(lines)
    return "".join(lines) + (f"\n  and {more} more" if more else "")
