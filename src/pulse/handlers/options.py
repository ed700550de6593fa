"""The options of a handler: how its jobs are retried and limited, how long they may run, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict

from pulse import topic_settings
from pulse.errors import InvalidArgument
from pulse.handlers.signatures import is_coroutine_function, takes
from pulse.jobs.models import Unique
from pulse.jobs.submissions import check_priority, check_values
from pulse.topic_settings import Backoff, Entries, Rate


class LimitOptions(TypedDict, total=False):
    """The options of a handler that limit its jobs, in the whole cluster."""

    running: int | None
    """How many run at once."""
    rate: Rate | None
    """How many start in a period."""
    pool: str | None
    """`running` and `rate` count over all topics of the pool."""
    per_lane: int | None
    """How many of one lane run at once. The lane is given at `enqueue`."""
    lane_rate: Rate | None
    """How many of one lane start in a period."""
    turns: bool
    """Lanes take turns, so that a lane with many jobs does not delay other lanes."""
    ordered: bool
    """One job of a lane at a time, in order; a job that is retried holds its lane."""
    aging: timedelta | None
    """A job that waits this long gains one step of priority, so that no job waits for ever."""


LIMIT_OPTIONS = tuple(LimitOptions.__annotations__)


def make_limits(given: Mapping[str, Any]) -> Entries:
    """Return the limits. Raises InvalidArgument for a wrong limit."""
    values = {name: value for name, value in given.items() if value is not None}
    try:
        topic_settings.check(values, code=True)
        topic_settings.check_together(values)
    except ValueError as problem:
        raise InvalidArgument(str(problem)) from None
    # False means not set: code can only add limits.
    return {name: value for name, value in values.items() if value is not False}


RetryDelay: TypeAlias = Callable[[int, BaseException], timedelta]
"""Returns the delay after a failed attempt, given its number (1 for the first) and the error."""


class JobOptions(LimitOptions, total=False):
    """The options of `@p.job` and `register`."""

    max_attempts: int | None
    """Of jobs that are enqueued without their own."""
    priority: int
    """Of jobs that are enqueued without their own."""
    timeout: timedelta | None
    """How long one attempt may take."""
    retry: Backoff | RetryDelay | None
    """The delays between attempts, or a function of the attempt and the error that returns one."""
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    """The errors after which the job is retried. Any other makes it a dead letter. Empty: all."""
    discard_on: type[BaseException] | tuple[type[BaseException], ...]
    """The errors that make the job a dead letter at once. Wins over `retry_on`."""
    start_within: timedelta | None
    """A job that has not started this long after it was due is canceled."""
    unique: Unique | None
    """The default of its jobs: at most one job of a key waits, or is unfinished."""
    process: bool
    """Run each attempt in a child process: for CPU-bound work, or a time limit that can kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """The checked `JobOptions` of one handler. The server's settings replace missing options."""

    max_attempts: int | None = None
    priority: int = 0
    timeout: timedelta | None = None
    retry: Backoff | RetryDelay | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    discard_on: tuple[type[BaseException], ...] = ()
    start_within: timedelta | None = None
    unique: Unique | None = None
    process: bool = False
    limits: Entries = field(default_factory=dict, hash=False)
    """The `LimitOptions`, as entries of the settings of its topic."""
    given: JobOptions = field(default_factory=JobOptions, compare=False, repr=False)
    """What it was made of."""

    def over(self, defaults: JobOptions) -> HandlerOptions:
        """Return these options, with the defaults for those that were not given."""
        return make_options({**defaults, **self.given}) if defaults else self


NO_OPTIONS = HandlerOptions()


def make_options(given: JobOptions) -> HandlerOptions:
    """Return the options. Raises InvalidArgument for an unknown or wrong option."""
    if not given:
        return NO_OPTIONS
    own = [each.name for each in fields(HandlerOptions) if each.name not in ("limits", "given")]
    known = [*own, *LIMIT_OPTIONS]
    if unknown := sorted(given.keys() - set(known)):
        raise InvalidArgument(f"A handler has no option {unknown[0]!r}. Its options are {', '.join(known)}.")
    values: dict[str, Any] = {name: value for name, value in given.items() if name not in LIMIT_OPTIONS}
    values["limits"] = make_limits({name: value for name, value in given.items() if name in LIMIT_OPTIONS})
    for name in ("retry_on", "discard_on"):
        if name in values:
            values[name] = _errors(name, values[name])
    check_values(values)
    check_priority(values.get("priority", 0))  # None is not one here
    _check_retry(values.get("retry"))
    if not isinstance(values.get("unique"), Unique | None):
        raise InvalidArgument(f"unique has to be a pulse.Unique(…), but {values['unique']!r} was given.")
    if not isinstance(values.get("process", False), bool):
        raise InvalidArgument(f"process has to be True or False, but {values['process']!r} was given.")
    return HandlerOptions(**values, given=given)


def _check_retry(retry: Any) -> None:
    if retry is None or isinstance(retry, Backoff):
        return
    if not callable(retry):
        raise InvalidArgument(
            f"retry has to be a pulse.Backoff(…) or a function of (attempt, error), but {retry!r} was given."
        )
    if is_coroutine_function(retry):
        raise InvalidArgument(
            f"retry has to be a `def` function, which returns a timedelta at once, but {retry!r} is async."
        )
    if not takes(retry, 1, Exception()):
        raise InvalidArgument(
            f"retry has to be a function of (attempt, error), but {retry!r} cannot be called with these two."
        )


def _errors(name: str, value: Any) -> tuple[type[BaseException], ...]:
    errors = value if isinstance(value, tuple | list) else (value,)
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise InvalidArgument(
                f"{name} has to be exception classes, such as (OSError,), but has {error!r}."
            )
    return tuple(errors)
