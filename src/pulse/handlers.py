"""The handlers of one client: which function serves which topic, and how a payload becomes a call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pulse.context import Context
from pulse.errors import InvalidArgument, InvalidHandler
from pulse.payload import UndecodableArgs, decoder_for, encode
from pulse.signatures import Signature, read_signature

Call = Callable[[Any, Context], Any]


class Handler:
    """A function that serves one topic, with everything about its signature worked out beforehand."""

    __slots__ = ("_signature", "call", "decode", "function", "is_async", "topic")

    def __init__(self, topic: str, function: Callable[..., Any], names: Mapping[str, Any]) -> None:
        if not callable(function):
            raise InvalidHandler(f"The handler for {topic!r} has to be a function, not {function!r}.")
        if _is_generator(function):
            raise InvalidHandler(f"The handler for {topic!r} is a generator; a handler runs and returns.")
        self.topic = topic
        self.function = function
        self.is_async = _is_coroutine_function(function)
        self._signature = read_signature(function, names)
        self.decode: Callable[[bytes], Any] = _decode(self._signature)
        """From a payload to the arguments. Raises UndecodableArgs."""
        self.call: Call = _call(function, self._signature)
        """Calls the function with decoded arguments and the context."""

    def encode_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the payload for a call with these arguments. Raises InvalidArgument if they do not fit."""
        document = self._signature.document
        if document is not None:
            return encode(self._bind_one(document.name, document.required, args, kwargs))
        return encode(self._bind(args, kwargs) or None)

    def encode_item(self, item: Any) -> bytes:
        """Return the payload for one item of an `enqueue_many`: the document, or a mapping of parameters."""
        if self._signature.document is not None:
            return encode(item)
        if item is None:
            return self.encode_call((), {})
        if isinstance(item, Mapping):
            return self.encode_call((), dict(item))
        raise InvalidArgument(
            f"{self.topic!r} takes keyword parameters: give a mapping of them for each job, not {item!r}."
        )

    def _bind_one(self, name: str, required: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs:
            return args[0]
        if not args and len(kwargs) == 1 and name in kwargs:
            return kwargs[name]
        if not args and not kwargs and not required:
            return None
        raise InvalidArgument(
            f"{self.topic!r} takes one argument, {name}, "
            f"but {len(args)} by position and {sorted(kwargs)} by name were given."
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
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
            raise InvalidArgument(f"{self.topic!r} {problem}.")
        return bound


class Registry:
    """The handlers of one client, by topic."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self.get = self._handlers.get
        """Return the handler that serves the topic, or None."""
        self._is_serving = False

    def register(self, topic: str, function: Callable[..., Any], names: Mapping[str, Any]) -> Handler:
        """Add a handler. Raises InvalidHandler if the topic has one, or the function cannot be one."""
        if not isinstance(topic, str) or not topic:
            raise InvalidArgument('A handler needs a topic: write @p.job("send-email").')
        if self._is_serving:
            raise InvalidHandler(f"The handler for {topic!r} comes too late: register it before run().")
        known = self._handlers.get(topic)
        if known is not None:
            raise InvalidHandler(
                f"{topic!r} has a handler already, {_qualified_name(known.function)}. "
                "One function serves a topic; choose another topic for the second."
            )
        handler = Handler(topic, function, names)
        self._handlers[topic] = handler
        return handler

    def serve(self, is_serving: bool) -> None:
        """Say whether a worker runs; while one does, its topics are settled."""
        self._is_serving = is_serving

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


def _decode(signature: Signature) -> Callable[[bytes], Any]:
    document = signature.document
    if document is None:
        if not signature.parameters:
            return _no_arguments
        return decoder_for(signature.keywords())
    read = decoder_for(document.annotation)
    if document.required:
        return read
    # An empty payload leaves the parameter to its default.
    return lambda payload: read(payload) if payload else _LEFT_OUT


def _call(function: Callable[..., Any], signature: Signature) -> Call:
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


def _call_by_name(function: Callable[..., Any], signature: Signature) -> Call:
    assert signature.document is not None
    name = signature.document.name
    with_keywords = _call_with_keywords(function, signature)
    return lambda value, ctx: with_keywords({name: value}, ctx)


def _call_with_keywords(function: Callable[..., Any], signature: Signature) -> Call:
    context = signature.context
    if context is None:
        return lambda values, _: function(**values)
    if context.positional_only or (signature.context_is_first and not context.keyword_only):
        return lambda values, ctx: function(ctx, **values)
    context_name = context.name
    return lambda values, ctx: function(**values, **{context_name: ctx})


def _no_arguments(_: bytes) -> dict[str, Any]:
    return {}


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def _is_generator(function: Callable[..., Any]) -> bool:
    inner = _called(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def _called(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return getattr(function, "__call__", function)  # noqa: B004


def _qualified_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


class _LeftOut:
    pass


_LEFT_OUT = _LeftOut()

__all__ = ["Handler", "Registry", "UndecodableArgs"]
