"""What handlers run in: their middleware, and the resources of the process."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pulse.errors import InvalidHandler
from pulse.handlers.handler import Handler, full_name, qualified_name
from pulse.handlers.middleware import Middleware, check_middleware, surrounded
from pulse.handlers.resources import NO_STATE, Opened, Resource, State, type_name


class Surroundings:
    """The middleware and the resources of one client, in the order of registration."""

    def __init__(self) -> None:
        self._middleware: list[Middleware] = []
        self._resources: list[Resource] = []
        self._openings = 0

    @property
    def has_resources(self) -> bool:
        return bool(self._resources)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add middleware inside of what was added before. Raises InvalidMiddleware."""
        check_middleware(middleware)
        self._check_early(f"The middleware {qualified_name(middleware)}")
        for at, known in enumerate(self._middleware):
            if is_redefined(known, middleware):
                self._middleware[at] = middleware
                return
        self._middleware.append(middleware)

    def add_resource(self, factory: Any, names: Mapping[str, Any]) -> None:
        """Add a resource. Raises InvalidArgument if it cannot be one, or its name or type is taken."""
        resource = Resource(factory, names)
        self._check_early(f"The resource {resource.name}")
        for at, other in enumerate(self._resources):
            if is_redefined(other.factory, factory):
                self._resources[at] = resource
                return
            if other.name == resource.name or (
                other.provides is not None and other.provides == resource.provides
            ):
                raise InvalidHandler(
                    f"The resources {other.name} and {resource.name} have the same name or type, so that a "
                    "handler could get either. Give the second a name and a type of its own."
                )
        self._resources.append(resource)

    def _check_early(self, what: str) -> None:
        if self._openings:
            raise InvalidHandler(f"{what} comes too late: register it before run().")

    @asynccontextmanager
    async def opened(self, handlers: Collection[Handler]) -> AsyncIterator[None]:
        """Open the resources and put the handlers into these surroundings, for as long as the block runs.

        Raises ResourceFailed if a resource cannot be opened or closed, and InvalidHandler for a handler that
        takes one that there is not. Once for each process: a child opens its own.
        """
        resources = Opened(list(self._resources))
        self._openings += 1
        try:
            self._surround(handlers, await resources.open())
            yield
        finally:
            self._openings -= 1
            for handler in handlers:
                handler.state, handler.call = NO_STATE, handler.call_with({})
            await resources.close()

    def _surround(self, handlers: Collection[Handler], state: State) -> None:
        for handler in handlers:
            given: dict[str, Any] = {}
            for parameter in handler.resources:
                if parameter.annotation not in state:
                    raise InvalidHandler(
                        f"The handler for {handler.topic!r} takes the resource {parameter.name}, but there "
                        f"is none of the type {type_name(parameter.annotation)}. {self._remedy()}"
                    )
                given[parameter.name] = state[parameter.annotation]
            handler.state = state
            handler.call = surrounded(handler, handler.call_with(given), self._middleware)

    def _remedy(self) -> str:
        for resource in self._resources:
            if resource.provides is None:
                return (
                    f"The type of {resource.name} is not known: annotate what it returns, such as "
                    "-> Iterator[Database]."
                )
        return "Register one with @p.resource."


def is_redefined(known: object, function: object) -> bool:
    """True if both are functions of one name and module: a cell of a notebook ran again."""
    if not (inspect.isroutine(known) and inspect.isroutine(function)):
        return False
    name = full_name(known)
    return (
        name == full_name(function) and "<" not in name
    )  # <lambda> and <locals> name more than one function
