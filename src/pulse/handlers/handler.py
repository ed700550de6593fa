"""A function that serves a topic: how it is called, and how its jobs are encoded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Set
from typing import Any

from pulse.errors import InvalidArgument, InvalidHandler
from pulse.handlers.calls import Call, call_for, decode_for
from pulse.handlers.context import Context, Hold
from pulse.handlers.options import NO_OPTIONS, HandlerOptions
from pulse.handlers.resources import NO_STATE
from pulse.handlers.signatures import (
    Parameter,
    Signature,
    is_coroutine_function,
    is_generator,
    read_returned,
    read_signature,
)
from pulse.handlers.sync_context import SyncContext
from pulse.payload import UndecodableArgs, encode


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


def _reads_anything(signature: Signature) -> bool:
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
