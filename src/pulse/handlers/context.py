"""The job that a handler runs, and the resources that it uses.

Resources are opened by a worker process before its first job, and closed after its last handler. Each log
record has the running job: its id, topic and attempt, whatever the logger. The names have the prefix
`pulse_`: logging refuses a record whose `extra` has a name that the record has already, and applications use
`job_id` and `topic` themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import traceback
import typing
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, overload

from pulse.error_text import in_a_line
from pulse.errors import ClientClosed, InvalidArgument, ResourceFailed
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.steps import NO_SIGNALS, GivenSignals, Steps, returned
from pulse.handlers.workflows import ContextWorkflow
from pulse.jobs.caller import current_context
from pulse.jobs.models import (
    KEPT,
    AnyCursor,
    Progress,
    Reported,
    check_report,
    progress_message,
    read_progress,
)
from pulse.outcomes import Cancelled
from pulse.tracing import without_context
from pulse.v1 import pulse_pb2 as pb

T = TypeVar("T")
logger = logging.getLogger("pulse.worker")


class _Injected:
    """The default of a parameter that the worker fills with a resource."""

    def __repr__(self) -> str:
        return "pulse.INJECTED"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"This parameter is filled by a worker, so it has no {name!r} here. "
            "In a unit test, give the handler a resource by name: handler(…, db=fake)."
        )


INJECTED: Any = _Injected()
"""The default of a handler's parameter that takes a resource of the annotated type."""


class State:
    """The resources of a worker process: `ctx.state[Database]`, or by name `ctx.state["database"]`."""

    def __init__(self, values: Mapping[Any, Any] | None = None) -> None:
        self._values: dict[Any, Any] = dict(values or {})

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: type[T]) -> T: ...
    def __getitem__(self, key: Any) -> Any:
        try:
            return self._values[key]
        except (KeyError, TypeError):
            known = ", ".join(sorted(name for name in self._values if isinstance(name, str))) or "none"
            raise InvalidArgument(
                f"There is no resource {type_name(key)}. Register it with @p.resource; there are: {known}."
            ) from None

    def __contains__(self, key: object) -> bool:
        try:
            return key in self._values
        except TypeError:  # it cannot be hashed
            return False

    def __repr__(self) -> str:
        return f"State({', '.join(sorted(name for name in self._values if isinstance(name, str)))})"


NO_STATE = State()


class Resource:
    """A function or class that opens one resource, and the type that it provides."""

    def __init__(self, factory: Callable[..., Any], names: Mapping[str, Any]) -> None:
        self.name = getattr(factory, "__name__", None) or type(factory).__name__
        if not callable(factory) or inspect.iscoroutinefunction(factory):
            raise InvalidArgument(
                f"The resource {self.name} has to be a function that yields it, or a context manager: "
                "open it, `yield` it, and close it after the `yield`."
            )
        self.factory = factory
        self.provides: Any = _provided(factory, names, self.name)
        """The type by which it is injected; None if it has no type."""
        self._needs = _parameters(factory, names, self.name)

    def manager(self, state: State) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Return the context manager that opens it. Its parameters are resources that were opened before."""
        given = {parameter: state[kind] for parameter, kind in self._needs.items()}
        if inspect.isasyncgenfunction(self.factory):
            return asynccontextmanager(self.factory)(**given)
        if inspect.isgeneratorfunction(self.factory):
            return contextmanager(self.factory)(**given)
        made = self.factory(**given)
        if not isinstance(made, AbstractContextManager | AbstractAsyncContextManager):
            raise InvalidArgument(f"{made!r} is not a context manager; `yield` the resource instead.")
        return made


class Opened:
    """The resources of one process, opened in order and closed in reverse."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._resources = resources
        self._open: list[tuple[Resource, Any]] = []
        self._values: dict[Any, Any] = {}

    async def open(self) -> State:
        """Open all. If one cannot be opened, close the opened ones and raise ResourceFailed."""
        for resource in self._resources:
            try:
                manager = resource.manager(State(self._values))
                if isinstance(manager, AbstractAsyncContextManager):
                    value = await manager.__aenter__()
                else:
                    value = manager.__enter__()
            except Exception as error:
                with suppress(ResourceFailed):  # it is logged
                    await self.close()
                raise ResourceFailed(
                    f"The resource {resource.name} cannot be opened: {_said(error)}{_place(resource, error)}"
                ) from error
            self._open.append((resource, manager))
            self._values[resource.name] = value
            if resource.provides is not None:
                self._values[resource.provides] = value
        return State(self._values)

    async def close(self) -> None:
        """Close all opened resources, then raise ResourceFailed if one could not be closed."""
        failed: ResourceFailed | None = None
        while self._open:
            resource, manager = self._open.pop()
            try:
                if isinstance(manager, AbstractAsyncContextManager):
                    await manager.__aexit__(None, None, None)
                else:
                    manager.__exit__(None, None, None)
            except Exception as error:
                logger.exception("The resource %s could not be closed.", resource.name)
                failed = ResourceFailed(f"The resource {resource.name} cannot be closed: {_said(error)}")
                failed.__cause__ = error
        if failed is not None:
            raise failed


_YIELDING = (AsyncIterator, Iterator, AbstractAsyncContextManager, AbstractContextManager)


def _provided(factory: Callable[..., Any], names: Mapping[str, Any], name: str) -> Any:
    """Return the type that the annotation of the factory promises."""
    if isinstance(factory, type):
        return factory
    inner = inspect.unwrap(factory)
    found = _hints(inner, names, name, ["return"]).get("return")
    origin = get_origin(found)
    if isinstance(origin, type) and any(issubclass(origin, kind) for kind in _YIELDING):
        found = get_args(found)[0]
    return None if found in (None, NoneType, Any) else found


def _parameters(factory: Callable[..., Any], names: Mapping[str, Any], name: str) -> dict[str, Any]:
    if isinstance(factory, type):
        return {}
    wanted = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    hints = _hints(inspect.unwrap(factory), names, name, wanted)
    if missing := [parameter for parameter in wanted if parameter not in hints]:
        raise InvalidArgument(
            f"The resource {name} takes {missing[0]}, which has no type. Annotate it with the type of a "
            "resource that is registered before."
        )
    return {parameter: hints[parameter] for parameter in wanted}


def _hints(
    function: Callable[..., Any], names: Mapping[str, Any], name: str, wanted: Sequence[str]
) -> dict[str, Any]:
    annotations = getattr(function, "__annotations__", {})
    holder = type(
        "holder", (), {"__annotations__": {key: annotations[key] for key in wanted if key in annotations}}
    )
    try:
        return typing.get_type_hints(holder, {**getattr(function, "__globals__", {})}, dict(names))
    except Exception as error:
        raise InvalidArgument(
            f"The resource {name} has an annotation that is not known at run time: {error}. "
            "Import the type where it is found, not only for the type checker."
        ) from None


def type_name(key: object) -> str:
    """Return a type as it is written, and anything else as it prints."""
    return key.__qualname__ if isinstance(key, type) else repr(key)


def _place(resource: Resource, error: BaseException) -> str:
    """Return the last line of the factory's own file that the error has passed, in parentheses."""
    try:
        file = inspect.getfile(inspect.unwrap(resource.factory))
    except (TypeError, OSError):
        return ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({file}, line {lines[-1]})" if lines else ""


def _said(error: BaseException) -> str:
    return f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__


Hold: TypeAlias = Callable[[str, timedelta | datetime], Coroutine[Any, Any, None]]

_current: ContextVar[Context] = current_context


class Context(ContextWorkflow):
    """The job that a handler runs: its id, the attempt, and whether the handler should stop.

    A handler receives it in a parameter annotated `pulse.Context` (or named `ctx`). In a unit test,
    create one: `pulse.Context(job_id="…", attempt=2, state={"database": fake})`.
    """

    # There is one for every job, so it wraps the message and reads fields on access.
    __slots__ = (
        "_assignment",
        "_cancelled",
        "_event",
        "_hold",
        "_logger",
        "_on_progress",
        "_reported",
        "_state",
    )

    # Unset until they are used: most handlers never use them.
    _event: asyncio.Event
    _logger: logging.LoggerAdapter[logging.Logger]
    _on_progress: Callable[[Reported], None]
    _reported: Reported

    def __init__(
        self,
        *,
        job_id: str = "00000000-0000-7000-8000-000000000000",
        topic: str = "test",
        attempt: int = 1,
        max_attempts: int = 3,
        priority: int = 0,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        lane: str | None = None,
        state: Mapping[Any, Any] | None = None,
        last_progress: Progress | None = None,
        signals: Mapping[str, Any] | None = None,
        parents: Mapping[str, Any] | None = None,
    ) -> None:
        """`signals` has the values for `wait_for` in a unit test. Other signals time out.

        `parents` has the results, or a `Parent`, for `ctx.parents`, by name.
        """
        self._assignment = pb.JobAssignment(
            job_id=job_id,
            topic=topic,
            attempt=attempt,
            run=attempt,
            max_attempts=max_attempts,
            priority=priority,
            metadata=metadata,
            idempotency_key=idempotency_key or "",
            lane=lane or "",
            progress=None if last_progress is None else progress_message(last_progress),
        )
        self._hold: Hold | None = None
        self._steps = GivenSignals(signals or {})
        self._given_parents = parents or {}
        self._cancelled = self._completes_in_transaction = False
        self._state = State(state)

    @property
    def job_id(self) -> str:
        return self._assignment.job_id

    @property
    def topic(self) -> str:
        return self._assignment.topic

    @property
    def attempt(self) -> int:
        """1 for the first. A run that was snoozed, suspended or released cost no attempt."""
        return self._assignment.attempt

    @property
    def run(self) -> int:
        """Grows with every run, also if it costs no attempt. With `job_id` it identifies this run."""
        return self._assignment.run

    @property
    def max_attempts(self) -> int:
        return self._assignment.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        """True when a failure makes the job a dead letter."""
        return self.attempt >= self.max_attempts

    @property
    def priority(self) -> int:
        return self._assignment.priority

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata given to `enqueue`."""
        return without_context(self._assignment.metadata)

    @property
    def idempotency_key(self) -> str | None:
        return self._assignment.idempotency_key or None

    @property
    def lane(self) -> str | None:
        """The lane given to `enqueue`, if the topic has limits."""
        return self._assignment.lane or None

    def hold(self, until: timedelta | datetime) -> Coroutine[Any, Any, None]:
        """Start no further job of this topic and its pool for a while, in any worker.

        For an API that asks for fewer calls: `await ctx.hold(timedelta(seconds=30))`, then raise
        `pulse.Snooze` or `pulse.Retry`. Running jobs continue. In a `def` handler it blocks,
        without `await`. The topic needs limits. If the server has users, a hold lasts at most a
        day. In a unit test it does nothing.
        """
        held: Coroutine[Any, Any, None] = (
            returned(None) if self._hold is None else self._hold(self.topic, until)
        )
        return held

    def progress(self, fraction: float | None, text: str = "", *, cursor: AnyCursor = KEPT) -> None:
        """Report how far this attempt has come: `ctx.progress(0.4, "20 of 50 files", cursor=20)`.

        Call it at any rate, in any thread: it returns at once, and the newest report is stored about once a
        second, with the heartbeat. `fraction` is from 0 to 1, or None if it is not known. The next attempt
        finds the report in `last_progress`, and the `cursor`, a small JSON value, in `cursor`. Without a
        cursor the last one stays; None removes it. Raises InvalidArgument for what cannot be stored or shown.
        In a unit test it is only checked.
        """
        reported = self._reported = check_report(fraction, text, cursor, reported_progress(self))
        if (pass_on := getattr(self, "_on_progress", None)) is not None:
            pass_on(reported)

    @property
    def last_progress(self) -> Progress | None:
        """How far the attempts before this one came, as last stored. None if they reported nothing."""
        assignment = self._assignment
        return read_progress(assignment.progress) if assignment.HasField("progress") else None

    @property
    def cursor(self) -> Any:
        """Where the attempts before this one were: the cursor of `last_progress`, or None."""
        last = self.last_progress
        return None if last is None else last.cursor

    @property
    def state(self) -> State:
        """The resources of the worker: `ctx.state[Database]`, or by name, `ctx.state["database"]`."""
        return self._state

    @property
    def cancelled(self) -> bool:
        """True once the handler should stop: its job was canceled, its lease was lost, its time limit is
        reached, or the worker stops.

        An async handler is also canceled at its next await. In a sync handler `pulse.Cancelled` is raised, or
        `pulse.TimedOut`: at its next bytecode, so not while it waits in C code.
        """
        return self._cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `pulse.Cancelled` once the handler should stop. Safe in any thread."""
        if self._cancelled:
            raise Cancelled(f"Job {self.job_id} should stop.")

    async def wait_cancelled(self) -> None:
        """Return once the handler should stop. For tasks that an async handler starts."""
        if self._cancelled:
            return
        if (event := getattr(self, "_event", None)) is None:
            event = self._event = asyncio.Event()
        await event.wait()

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry job_id, topic and attempt."""
        if not hasattr(self, "_logger"):
            facts = {"job_id": self.job_id, "topic": self.topic, "attempt": self.attempt}
            self._logger = _JobLogger(_logger, facts)
        return self._logger

    def __repr__(self) -> str:
        return f"{type(self).__name__}(job_id={self.job_id!r}, topic={self.topic!r}, attempt={self.attempt})"


def running_context() -> Context | None:
    """Return the context of the running job, or None outside of a handler."""
    return _current.get(None)


def current() -> Context:
    """Return the context of the running job. Raises ClientClosed outside of a handler."""
    context = _current.get(None)
    if context is None:
        raise ClientClosed("pulse.current() was called outside of a handler: no job is running here.")
    return context


def context_for(
    assignment: pb.JobAssignment,
    state: State,
    hold: Hold | None = None,
    steps: StepCalls | GivenSignals = NO_SIGNALS,
    kind: type[Context] | None = None,
) -> Context:
    """Return the context for an assignment, with the resources of the worker."""
    context = Context.__new__(kind or Context)
    context._state = state
    context._hold = hold
    context._steps = steps
    context._assignment = assignment
    context._cancelled = context._completes_in_transaction = False
    return context


def is_lost(context: Context) -> bool:
    """True if a call about a step was refused: the claim of the job no longer holds."""
    return isinstance(context._steps, Steps) and context._steps.is_lost


def steps_of(context: Context) -> Steps | None:
    """Return the steps of the attempt, if its handler has used a verb."""
    steps = context._steps
    return steps if type(steps) is Steps else None


make_current = _current.set
"""Set the context that `current()` returns, in the contextvars of the caller."""


def reported_progress(context: Context) -> Reported | None:
    """Return the handler's last report. Safe in any thread."""
    return getattr(context, "_reported", None)


def set_reported_progress(context: Context, reported: Reported) -> None:
    """Take over the report of a handler in another process."""
    context._reported = reported


def on_progress(context: Context, call: Callable[[Reported], None]) -> None:
    """Have each report passed to the function, in the thread of the handler."""
    context._on_progress = call


def request_stop(context: Context) -> None:
    """Ask the handler to stop. Call it in the thread of the event loop."""
    context._cancelled = True
    if (event := getattr(context, "_event", None)) is not None:
        event.set()


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        # The standard adapter would drop the `extra` of the caller.
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


_logger = logging.getLogger("pulse.job")

# The server bounds a topic. This is shorter, because a formatter prints it with each line.
_TOPIC_CHARACTERS = 100


def add_job_to_log_records() -> None:
    """Add the running job to every log record from now on. Call it once for each process.

    A record factory of the application still makes the records. A factory that is set later
    replaces this one, unless it calls the previous factory, as the documentation of logging shows.
    """
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, _RecordFactory):
        logging.setLogRecordFactory(_RecordFactory(factory))


@contextlib.contextmanager
def records_of(context: Context) -> Iterator[None]:
    """Have the records of a block carry this job, although the block is not part of its handler."""
    token = make_current(context)
    try:
        yield
    finally:
        token.var.reset(token)


class _RecordFactory:
    """Makes records with another factory, and adds `pulse_job_id`, `pulse_topic` and `pulse_attempt`."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._factory(*args, **kwargs)
        # Outside of a handler too, with empty values: a format string may name them.
        context = running_context()
        if context is None:
            record.pulse_job_id, record.pulse_topic, record.pulse_attempt = "", "", 0
            record.pulse_job = ""
        else:
            topic = in_a_line(context.topic, _TOPIC_CHARACTERS)
            record.pulse_job_id, record.pulse_topic = context.job_id, topic
            record.pulse_attempt = context.attempt
            record.pulse_job = f" [{topic} {context.job_id}, attempt {context.attempt}]"
        return record
