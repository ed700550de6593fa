"""A function that serves a topic: its options, how it is called, and how its jobs are encoded.

Options are how its jobs are retried and limited, how long they may run, and where. The call is prepared once
for each handler, so that a job costs one or two calls.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict

from pulse import topic_settings
from pulse.errors import InvalidArgument, InvalidHandler
from pulse.handlers.context import NO_STATE, Context, Hold
from pulse.handlers.signatures import (
    HandlerSignature,
    Parameter,
    SyncContext,
    is_coroutine_function,
    is_generator,
    read_returned,
    read_signature,
    takes,
)
from pulse.jobs.models import Unique
from pulse.jobs.submissions import check_priority, check_values
from pulse.payload import UndecodableArgs, decoder_for, encode
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


Call = Callable[[Any, Context], Any]


def decode_for(signature: HandlerSignature) -> Callable[[bytes], Any]:
    """Return the function from payload to arguments. It raises UndecodableArgs."""
    document = signature.document
    if document is None:
        if not signature.parameters:
            return _no_arguments
        return decoder_for(signature.keywords())
    read = decoder_for(document.annotation)
    if document.required:
        return read
    # With an empty payload the parameter has its default.
    return lambda payload: read(payload) if payload else _LEFT_OUT


def call_for(function: Callable[..., Any], signature: HandlerSignature) -> Call:
    """Return the function that calls the handler with decoded arguments and the context."""
    document, context = signature.document, signature.context
    if document is None:
        return _call_with_keywords(function, signature)
    name = document.name
    if context is None:
        call: Call = (
            (lambda value, _: function(**{name: value}))
            if document.keyword_only
            else (lambda value, _: function(value))
        )
    elif document.keyword_only or context.keyword_only:
        call = _call_by_name(function, signature)
    elif signature.context_is_first:
        call = lambda value, ctx: function(ctx, value)  # noqa: E731
    else:
        call = lambda value, ctx: function(value, ctx)  # noqa: E731
    if document.required:
        return call
    without = _call_with_keywords(function, signature)
    return lambda value, ctx: without({}, ctx) if value is _LEFT_OUT else call(value, ctx)


def _call_by_name(function: Callable[..., Any], signature: HandlerSignature) -> Call:
    assert signature.document is not None
    name = signature.document.name
    with_keywords = _call_with_keywords(function, signature)
    return lambda value, ctx: with_keywords({name: value}, ctx)


def _call_with_keywords(function: Callable[..., Any], signature: HandlerSignature) -> Call:
    context = signature.context
    if context is None:
        return lambda values, _: function(**values)
    if context.positional_only or (signature.context_is_first and not context.keyword_only):
        return lambda values, ctx: function(ctx, **values)
    context_name = context.name
    return lambda values, ctx: function(**values, **{context_name: ctx})


def _no_arguments(_: bytes) -> dict[str, Any]:
    return {}


class _LeftOut:
    def __repr__(self) -> str:
        return "(left out)"


_LEFT_OUT = _LeftOut()


class Handler:
    """A function that serves one topic. Its signature is analyzed once."""

    __slots__ = (
        "_reads_anything",
        "_signature",
        "call",
        "context_type",
        "decode",
        "function",
        "hold",
        "is_async",
        "options",
        "retry_undecodable",
        "returns",
        "runs_in_loop",
        "state",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: HandlerOptions = NO_OPTIONS,
    ) -> None:
        if not callable(function):
            raise InvalidHandler(f"The handler for {topic!r} has to be a function, not {function!r}.")
        if is_generator(function):
            raise InvalidHandler(f"The handler for {topic!r} is a generator; a handler runs and returns.")
        self.topic = topic
        self.function = function
        self.options = options
        self.retry_undecodable = False
        """Whether a job whose payload cannot be decoded is retried. By default it becomes a dead letter."""
        self.is_async = is_coroutine_function(function)
        self.runs_in_loop = self.is_async and not options.process
        """Whether it runs in the event loop of the worker. Other handlers run in a thread, or a process."""
        self._signature = read_signature(function, names)
        self.context_type = Context if self.is_async else SyncContext
        """Of the context that its calls receive."""
        self._check_context()
        self.returns = read_returned(function, names)
        self._check_unique()
        self._reads_anything = _reads_anything(self._signature)
        self.decode: Callable[[bytes], Any] = decode_for(self._signature)
        """Decodes a payload to the arguments. Raises UndecodableArgs."""
        self.call: Call = self.call_with({})
        """Calls the function with decoded arguments and the context. A worker puts it into its middleware."""
        self.state = NO_STATE
        """The resources of the worker that runs it."""
        self.hold: Hold | None = None
        """Holds a topic, through the client that has this handler."""

    def _check_context(self) -> None:
        context = self._signature.context
        if self.is_async and context is not None and context.annotation is SyncContext:
            raise InvalidHandler(
                f"The handler for {self.topic!r} is async, and pulse.SyncContext is for `def` handlers: "
                f"write `{context.name}: pulse.Context`."
            )

    def _check_unique(self) -> None:
        unique = self.options.unique
        if unique is None or self._signature.document is not None:
            return
        known = [parameter.name for parameter in self._signature.parameters]
        if unknown := [name for name in unique.fields if name not in known]:
            raise InvalidHandler(
                f"The handler for {self.topic!r} has no parameter {unknown[0]!r}, of which Unique makes its "
                f"key. It has {', '.join(known) or 'none'}."
            )

    @property
    def resources(self) -> tuple[Parameter, ...]:
        """The parameters that take resources. They are no part of the payload."""
        return self._signature.resources

    def call_with(self, resources: Mapping[str, Any]) -> Call:
        """Return the call of the function, with these resources for parameters of their names."""
        function = functools.partial(self.function, **resources) if resources else self.function
        return call_for(function, self._signature)

    def check(self, payload: bytes) -> None:
        """Raise InvalidArgument if the handler could not read this payload. Names the field."""
        if self._reads_anything:
            return
        try:
            self.decode(payload)
        except UndecodableArgs as error:
            raise InvalidArgument(f"The handler of {self.topic!r} could not read this job. {error}") from None
        except Exception as error:  # of a validator: nothing but our own errors leaves the SDK
            raise InvalidArgument(
                f"The handler of {self.topic!r} could not read this job: {type(error).__name__}: {error}"
            ) from error

    def encode_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Set[str] = frozenset()
    ) -> bytes:
        """Return the payload for a call with these arguments. Raises InvalidArgument if they do not fit.

        `options` are names that callers may take for arguments.
        """
        document = self._signature.document
        if document is not None:
            payload = encode(self._bind_one(document.name, document.required, args, kwargs, options))
        else:
            payload = encode(self._bind(args, kwargs, options) or None)
        self.check(payload)
        return payload

    def encode_item(self, item: Any) -> bytes:
        """Return the payload for an item of `enqueue_many`: the document, or a mapping of parameters."""
        if self._signature.document is not None:
            payload = encode(item)
            self.check(payload)
            return payload
        if item is None:
            return self.encode_call((), {})
        if isinstance(item, Mapping):
            return self.encode_call((), dict(item))
        raise InvalidArgument(
            f"{self.topic!r} takes keyword parameters: give a mapping of them for each job, not {item!r}."
        )

    def _bind_one(
        self, name: str, required: bool, args: tuple[Any, ...], kwargs: dict[str, Any], options: Set[str]
    ) -> Any:
        if len(args) == 1 and not kwargs:
            return args[0]
        if not args and len(kwargs) == 1 and name in kwargs:
            return kwargs[name]
        if not args and not kwargs and not required:
            return None
        raise InvalidArgument(
            f"{self.topic!r} takes one argument, {name}, "
            f"but {len(args)} by position and {sorted(kwargs)} by name were given"
            f"{_misplaced((kwargs.keys() - {name}) & options)}."
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Set[str]) -> dict[str, Any]:
        parameters = self._signature.parameters
        by_position = [parameter.name for parameter in parameters if not parameter.keyword_only]
        if len(args) > len(by_position):
            raise InvalidArgument(
                f"{self.topic!r} takes {len(by_position)} arguments by position, but {len(args)} were given."
            )
        bound = dict(zip(by_position, args, strict=False))
        for name, value in kwargs.items():
            if name in bound:
                raise InvalidArgument(f"{self.topic!r} was given {name} twice, by position and by name.")
            bound[name] = value
        unknown = bound.keys() - {parameter.name for parameter in parameters}
        missing = [
            parameter.name for parameter in parameters if parameter.required and parameter.name not in bound
        ]
        if unknown or missing:
            problem = (
                f"does not take {', '.join(sorted(unknown))}" if unknown else f"needs {', '.join(missing)}"
            )
            if unknown & {parameter.name for parameter in self.resources}:
                problem += ": a resource is not an argument of a job, the worker provides it"
            problem += _misplaced(unknown & options)
            raise InvalidArgument(f"{self.topic!r} {problem}.")
        return bound


def _misplaced(options: Set[str]) -> str:
    """Return where options belong that were given as arguments."""
    if not options:
        return ""
    names = ", ".join(f"{name}=…" for name in sorted(options))
    return f": options come before the arguments, .options({names}).enqueue(…)"


def _reads_anything(signature: HandlerSignature) -> bool:
    document = signature.document
    return document is not None and document.annotation in (Any, object, bytes)


def qualified_name(function: Callable[..., Any]) -> str:
    """Return the name of the function for messages."""
    return getattr(function, "__qualname__", None) or repr(function)


def full_name(function: Callable[..., Any]) -> str:
    """Return the names of the module and the function."""
    name = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{name}" if name else repr(function)


def place_of(function: Callable[..., Any]) -> tuple[str, int] | None:
    """Return the file and the line of the function, if it is written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else None
