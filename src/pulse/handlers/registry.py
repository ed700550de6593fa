"""The handlers of one client, by topic, with their middleware and resources."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any

from pulse.errors import InvalidArgument, InvalidHandler
from pulse.handlers.context import Hold
from pulse.handlers.handler import Handler, full_name, place_of, qualified_name
from pulse.handlers.middleware import Middleware, check_middleware, surrounded
from pulse.handlers.options import NO_OPTIONS, HandlerOptions, JobOptions
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

    @property
    def is_empty(self) -> bool:
        """True if there is neither middleware nor a resource."""
        return not (self._middleware or self._resources)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add middleware inside the middleware added before. Raises InvalidMiddleware."""
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

        Raises ResourceFailed if a resource cannot be opened or closed, and InvalidHandler for a
        handler that takes an unknown resource. Runs once for each process: a child opens its own
        resources.
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


logger = logging.getLogger("pulse")

# Those of pulse_server/base/bounds.py.
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
_LONGEST_TOPIC = 255


def is_topic(name: str) -> bool:
    """Return whether the server accepts the name as a topic."""
    return len(name) <= _LONGEST_TOPIC and _TOPIC.fullmatch(name) is not None


def check_topic(topic: str) -> None:
    """Raise InvalidArgument for a topic that the server would refuse."""
    if len(topic) > _LONGEST_TOPIC:
        raise InvalidArgument(f"topic has {len(topic)} characters; {_LONGEST_TOPIC} are allowed at the most.")
    if not is_topic(topic):
        raise InvalidArgument(
            f"topic {topic!r} is not allowed: use letters, digits and . _ - : / and start with a letter or "
            "digit."
        )


def matching_topics(pattern: str, topics: Collection[str]) -> list[str]:
    """Return the topics that a name or a pattern such as `mail.*` stands for."""
    # No topic has an asterisk in its name: the server refuses it.
    if isinstance(pattern, str) and "*" in pattern:
        return [topic for topic in topics if fnmatchcase(topic, pattern)]
    return [pattern] if pattern in topics else []


class Registry:
    """The handlers of one client, by topic."""

    def __init__(self, retry_undecodable: bool = False, hold: Hold | None = None) -> None:
        self._retry_undecodable = retry_undecodable
        self.defaults: JobOptions = {}
        """The options of handlers that are registered without their own."""
        self.hold = hold
        """Holds a topic for a handler."""
        self._handlers: dict[str, Handler] = {}
        self.get = self._handlers.get
        """Return the handler that serves the topic, or None."""
        self._is_serving = False
        self.surroundings = Surroundings()
        """The middleware and the resources of the handlers."""

    def register(
        self,
        topic: str,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: HandlerOptions = NO_OPTIONS,
    ) -> Handler:
        """Add a handler. Raises InvalidHandler if the topic has one, or the function cannot be one."""
        if not isinstance(topic, str) or not topic:
            raise InvalidArgument('A handler needs a topic: write @p.job("send-email").')
        check_topic(topic)
        self.check_free(topic, function)
        handler = Handler(topic, function, names, options.over(self.defaults))
        handler.retry_undecodable = self._retry_undecodable
        handler.hold = self.hold
        self._handlers[topic] = handler
        return handler

    def check_free(self, topic: str, function: Callable[..., Any]) -> None:
        """Raise InvalidHandler unless the function may become the handler of the topic.

        A function replaces an earlier function of the same name in the same module: a notebook
        defines it again when a cell runs again.
        """
        if self._is_serving:
            raise InvalidHandler(f"The handler for {topic!r} comes too late: register it before run().")
        known = self._handlers.get(topic)
        if known is None:
            return
        name = full_name(known.function)
        if name != full_name(function) or "<" in name:  # <lambda> and <locals> name more than one function
            raise InvalidHandler(
                f"{topic!r} has a handler already, {name}. "
                "One function serves a topic; choose another topic for the second."
            )
        before, after = place_of(known.function), place_of(function)
        if before is not None and after is not None and before[0] == after[0] and before[1] != after[1]:
            logger.warning(
                "The handler of %r at line %d of %s is replaced by another of the same name at line %d.",
                *(topic, before[1], before[0], after[1]),
            )

    def serve(self, is_serving: bool) -> None:
        """Set whether a worker runs. While one runs, no handler can be added."""
        self._is_serving = is_serving

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    def select(self, topics: Iterable[str] | None) -> list[str]:
        """Return the topics, or all for None. A pattern such as `mail.*` stands for all that match.

        Raises InvalidHandler for a topic without a handler, and for a pattern that matches none.
        """
        if topics is None:
            return list(self._handlers)
        if isinstance(topics, str):
            raise InvalidArgument(f"topics has to be a list of topics, not the string {topics!r}.")
        wanted = list(dict.fromkeys(topics))
        if not wanted:
            raise InvalidArgument(
                "topics is empty: name some, or leave it out to serve all that have a handler."
            )
        matches = {topic: matching_topics(topic, self._handlers) for topic in wanted}
        if unknown := [topic for topic, found in matches.items() if not found]:
            known = ", ".join(self._handlers) or "none"
            raise InvalidHandler(
                f"There is no handler for {', '.join(map(str, unknown))}; there are: {known}."
            )
        return list(dict.fromkeys(topic for found in matches.values() for topic in found))

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)
