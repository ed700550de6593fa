"""Reads a handler's signature: its parameters, the payload that fills them, and which context it gets.

A handler takes one document (a dataclass, msgspec.Struct, pydantic model, TypedDict, dict, bytes, Any or
unannotated parameter, or the only parameter if it is named `args` or `payload`), or plain keyword
parameters, or nothing. It can also take a Context, at any position. That of a `def` handler has verbs that
block.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    ParamSpec,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

import msgspec

from pulse.errors import InvalidHandler
from pulse.handlers.context import INJECTED, Context
from pulse.payload import is_pydantic_model

if TYPE_CHECKING:
    from pulse.handlers.workflows import Node, Nodes, Parent, Parents, RunningWorkflow, When

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


if TYPE_CHECKING:

    class SyncParents(Parents):
        """The jobs that a running job waited for, in a `def` handler."""

        def __getitem__(self, name: str) -> Parent: ...  # type: ignore[override]

    class SyncRunningWorkflow(RunningWorkflow):
        """The workflow of a running job, in a `def` handler."""

        def add(  # type: ignore[override]
            self,
            job: Any,
            /,
            *args: Any,
            name: str | None = None,
            after: Nodes = (),
            before: Nodes = (),
            when: When = "succeeded",
            **kwargs: Any,
        ) -> Node[Any]: ...

        def add_many(  # type: ignore[override]
            self,
            jobs: Iterable[Any],
            /,
            *,
            names: Iterable[str] | None = None,
            after: Nodes = (),
            before: Nodes = (),
            when: When = "succeeded",
        ) -> list[Node[Any]]: ...


class SyncContext(Context):
    """The context of a `def` handler: a `Context` whose verbs, from `step` to `hold`, block.

    The verbs return values; the verbs of a `Context` are awaited. Every `def` handler receives this
    context. The annotation is for type checkers.
    """

    __slots__ = ()

    # The verbs of Context block in a thread without an event loop: only their types differ.
    if TYPE_CHECKING:

        @property
        def parents(self) -> SyncParents: ...

        @property
        def workflow(self) -> SyncRunningWorkflow: ...

        @overload  # type: ignore[override]
        def step(
            self,
            name: str,
            function: Callable[Parameters, Awaitable[Value]],
            /,
            *args: Parameters.args,
            **kwargs: Parameters.kwargs,
        ) -> Value: ...

        @overload
        def step(
            self,
            name: str,
            function: Callable[Parameters, Value],
            /,
            *args: Parameters.args,
            **kwargs: Parameters.kwargs,
        ) -> Value: ...

        @overload
        def step(
            self, name: str, function: Callable[..., Any], /, *args: Any, index: int, **kwargs: Any
        ) -> Any: ...

        def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

        def sleep(self, delay: timedelta, *, name: str | None = None) -> None: ...  # type: ignore[override]

        @overload  # type: ignore[override]
        def wait_for(
            self,
            name: str,
            *,
            returns: type[Value],
            timeout: timedelta | None = None,
            index: int | None = None,
        ) -> Value: ...

        @overload
        def wait_for(
            self, name: str, *, timeout: timedelta | None = None, index: int | None = None
        ) -> Any: ...

        def wait_for(
            self,
            name: str,
            *,
            timeout: timedelta | None = None,
            index: int | None = None,
            returns: Any = None,
        ) -> Any: ...

        @overload  # type: ignore[override]
        def wait_for_any(
            self,
            *names: str,
            returns: type[Value],
            timeout: timedelta | None = None,
            index: int | None = None,
        ) -> tuple[str, Value]: ...

        @overload
        def wait_for_any(
            self, *names: str, timeout: timedelta | None = None, index: int | None = None
        ) -> tuple[str, Any]: ...

        def wait_for_any(
            self,
            *names: str,
            timeout: timedelta | None = None,
            index: int | None = None,
            returns: Any = None,
        ) -> Any: ...

        def hold(self, until: timedelta | datetime) -> None: ...  # type: ignore[override]

        def complete(self, connection: Any, result: object = None) -> None: ...  # type: ignore[override]


_DOCUMENT_NAMES = frozenset({"args", "payload"})
_CONTEXT_NAME = "ctx"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the payload has to fill."""

    name: str
    annotation: Any
    keyword_only: bool
    positional_only: bool
    required: bool


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """The parameters of a handler: one document or plain parameters, and optionally a context."""

    document: Parameter | None
    parameters: tuple[Parameter, ...]
    context: Parameter | None
    context_is_first: bool
    resources: tuple[Parameter, ...] = ()
    """Resources that the worker provides. They are not part of the payload."""

    def keywords(self) -> Any:
        """Return the TypedDict that a payload of plain parameters has to fit."""
        fields = {
            parameter.name: (Required if parameter.required else NotRequired)[parameter.annotation]
            for parameter in self.parameters
        }
        return typing.TypedDict("Parameters", fields)  # type: ignore[operator]


def read_signature(function: Callable[..., Any], names: Mapping[str, Any]) -> HandlerSignature:
    """Return the signature of a handler. Raises InvalidHandler if no payload can fill it.

    `names` are the local names where the handler was defined, for annotations that are strings.
    """
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidHandler(f"{function!r} cannot be a handler: its signature is not known.") from None
    context: Parameter | None = None
    context_is_first = False
    others: list[Parameter] = []
    resources: list[Parameter] = []
    for position, raw in enumerate(found.parameters.values()):
        if raw.kind in (raw.VAR_POSITIONAL, raw.VAR_KEYWORD):
            raise InvalidHandler(
                f"{_name(function)} takes {raw}, which a payload cannot fill by name. "
                "Name each parameter, or take one `dict`."
            )
        if position == 0 and raw.name == "self" and raw.annotation is raw.empty:
            raise InvalidHandler(
                f"{_name(function)} takes self, which a payload cannot fill. Use a function without it, or "
                "register the method of an object: p.register(topic, object.method)."
            )
        parameter = _parameter(function, raw, names)
        if raw.default is INJECTED:
            resources.append(_checked_resource(function, parameter))
        elif not _is_context(parameter):
            others.append(parameter)
        elif context is None:
            context, context_is_first = parameter, position == 0
        else:
            raise InvalidHandler(
                f"{_name(function)} takes two contexts, {context.name} and {parameter.name}. Keep one."
            )
    if len(others) == 1 and (others[0].name in _DOCUMENT_NAMES or _is_document(others[0].annotation)):
        return HandlerSignature(others[0], (), context, context_is_first, tuple(resources))
    _check_plain(function, others)
    return HandlerSignature(None, tuple(others), context, context_is_first, tuple(resources))


def read_returned(function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """Return the handler's return type, or Any if it is not known. Awaitables are unwrapped."""
    try:
        annotation = inspect.signature(function).return_annotation
        raw = inspect.Parameter("returned", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
        found = _resolved(function, raw, names)
    except (TypeError, ValueError, InvalidHandler):
        return Any
    if get_origin(found) in (Awaitable, Coroutine):
        return get_args(found)[-1]
    return found


def _checked_resource(function: Callable[..., Any], parameter: Parameter) -> Parameter:
    if parameter.positional_only or parameter.annotation is Any:
        raise InvalidHandler(
            f"{_name(function)} takes the resource {parameter.name}, which needs a type and a name: "
            f"write `{parameter.name}: Database = pulse.INJECTED`, not before a `/`."
        )
    return parameter


def _check_plain(function: Callable[..., Any], parameters: list[Parameter]) -> None:
    for parameter in parameters:
        if len(parameters) > 1 and _is_model(parameter.annotation):
            raise InvalidHandler(
                f"{_name(function)} takes the document {parameter.name} and other parameters besides. "
                "Take one document with everything in it, or plain parameters only."
            )
        if parameter.positional_only:
            raise InvalidHandler(
                f"{_name(function)} takes {parameter.name} by position only, and a payload fills parameters "
                "by name. Remove the `/`."
            )


def _parameter(function: Callable[..., Any], raw: inspect.Parameter, names: Mapping[str, Any]) -> Parameter:
    return Parameter(
        name=raw.name,
        annotation=_resolved(function, raw, names),
        keyword_only=raw.kind is raw.KEYWORD_ONLY,
        positional_only=raw.kind is raw.POSITIONAL_ONLY,
        required=raw.default is raw.empty,
    )


def _resolved(function: Callable[..., Any], raw: inspect.Parameter, names: Mapping[str, Any]) -> Any:
    if raw.annotation is raw.empty:
        return Any
    # One by one: the return annotation does not matter here, and may exist for type checkers only.
    inner = inspect.unwrap(function)
    if not hasattr(inner, "__globals__"):
        inner = getattr(getattr(inner, "func", None) or type(inner).__call__, "__func__", inner)
    module_names = getattr(inner, "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={raw.name: raw.annotation})
    try:
        hints = typing.get_type_hints(holder, {**module_names}, dict(names), include_extras=True)
    except Exception as error:
        raise InvalidHandler(
            f"{_name(function)} annotates {raw.name} with {raw.annotation!r}, which is not known: {error}. "
            "Import the type where it is found at run time, not only for the type checker."
        ) from None
    return hints[raw.name]


def _is_context(parameter: Parameter) -> bool:
    if parameter.annotation is Any:
        return parameter.name == _CONTEXT_NAME
    return not {Context, SyncContext}.isdisjoint(_members(parameter.annotation))


def _is_document(annotation: Any) -> bool:
    return any(
        member is Any or member is object or member is bytes or _is_mapping(member) or _is_model(member)
        for member in _members(annotation)
    )


def _is_mapping(annotation: Any) -> bool:
    base = get_origin(annotation) or annotation
    return isinstance(base, type) and issubclass(base, Mapping)


def _is_model(annotation: Any) -> bool:
    for member in _members(annotation):
        base = get_origin(member) or member
        if (
            typing.is_typeddict(base)
            or is_pydantic_model(base)
            or (
                isinstance(base, type)
                and (dataclasses.is_dataclass(base) or issubclass(base, msgspec.Struct))
            )
        ):
            return True
    return False


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself. Annotated is stripped."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in _members(part))
    return (annotation,)


def _name(function: Callable[..., Any]) -> str:
    return f"The handler {getattr(function, '__qualname__', None) or type(function).__name__}"


# ------------------------------------------------------------ functions of any kind


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """True if a call of it returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def is_generator(function: Callable[..., Any]) -> bool:
    """True if a call of it returns a generator."""
    inner = _called(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def takes(function: Callable[..., Any], *args: object) -> bool:
    """False if a call with these arguments is a TypeError. True if that cannot be found out."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # such as a function in C
    try:
        signature.bind(*args)
    except TypeError:
        return False
    return True


def _called(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return getattr(function, "__call__", function)  # noqa: B004
