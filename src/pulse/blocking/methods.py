"""Blocking methods made from async ones: `get_job = blocking(Pulse.get_job)`.

Each keeps the parameters, defaults and docstring of the async method, for type checkers and for `help()`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from pulse.blocking.bridge import Bridge
from pulse.schedules import Declaration

P = ParamSpec("P")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Client(Protocol):
    """An object with blocking methods: a `SyncPulse`, or its `schedules`."""

    _bridge: Bridge
    _async: Any
    """The object with the async methods."""


class BlockingMethod(Generic[P, Result]):
    """A method with the parameters of an async one. It is bound to its object as any function is."""

    def __init__(
        self,
        method: Callable[Concatenate[Any, P], object],
        function: Callable[..., Result],
        returns: str | None = None,
    ) -> None:
        """`function` takes the object and the parameters of `method`. `returns` replaces its annotation."""
        functools.update_wrapper(function, method)
        if returns is not None:
            signature = inspect.signature(method).replace(return_annotation=returns)
            function.__signature__ = signature  # type: ignore[attr-defined]
        self.function = function
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[Any]) -> Callable[Concatenate[Any, P], Result]: ...
    @overload
    def __get__(self, client: object, owner: type[Any]) -> Callable[P, Result]: ...
    def __get__(self, client: object, owner: type[Any]) -> Callable[..., Result]:
        bound: Callable[..., Result] = self.function.__get__(client, owner)
        return bound


def parameters_of(
    method: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, P], Result]]:
    """Give a method the parameters of another, for type checkers and for `help()`."""

    def give(own: Callable[..., Result]) -> Callable[Concatenate[Any, P], Result]:
        own.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return own

    return give


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]) -> BlockingMethod[P, Result]:
    """Return the method that blocks until the async one is done."""

    def call(client: Client, *args: P.args, **kwargs: P.kwargs) -> Result:
        return client._bridge.call(method, client._async, *args, **kwargs)

    return BlockingMethod(method, call)


def blocking_generator(
    method: Callable[Concatenate[Any, P], AsyncGenerator[Item, None]],
) -> BlockingMethod[P, Generator[Item, None, None]]:
    """Return a method that yields the items of the async method, and blocks for each item."""

    def call(client: Client, *args: P.args, **kwargs: P.kwargs) -> Generator[Item, None, None]:
        return client._bridge.iterate(method(client._async, *args, **kwargs))

    returned: str = method.__annotations__["return"]
    return BlockingMethod(method, call, returned.removeprefix("Async").replace(", None]", ", None, None]"))


def blocking_pages(
    method: Callable[Concatenate[Any, P], AsyncIterator[Item]],
    list_page: Callable[..., Coroutine[Any, Any, Any]],
) -> BlockingMethod[P, Iterator[Item]]:
    """Return the method that yields the items of all pages. It blocks for each page, not for each item."""

    def call(client: Client, *args: Any, page_size: int | None = None, **options: Any) -> Iterator[Item]:
        if page_size is not None:
            options["limit"] = page_size
        cursor: str | None = None
        while True:
            page = client._bridge.call(list_page, client._async, *args, cursor=cursor, **options)
            yield from page
            cursor = page.next_cursor
            if cursor is None:
                return

    return BlockingMethod(method, call, method.__annotations__["return"].removeprefix("Async"))


def declaring(method: Callable[Concatenate[Any, P], Declaration]) -> BlockingMethod[P, None]:
    """Return the method that declares a schedule. It returns None: a Declaration can only be awaited."""

    def call(client: Client, *args: P.args, **kwargs: P.kwargs) -> None:
        method(client._async, *args, **kwargs)

    return BlockingMethod(method, call, "None")
