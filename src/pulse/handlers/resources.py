"""Resources: opened by a worker process before its first job, closed after its last handler."""

from __future__ import annotations

import inspect
import logging
import traceback
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, overload

from pulse.errors import InvalidArgument, ResourceFailed

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
