"""The handlers of one client, by topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pulse.errors import InvalidArgument, InvalidHandler
from pulse.handlers.context import Hold
from pulse.handlers.handler import Handler, full_name, place_of
from pulse.handlers.options import NO_OPTIONS, HandlerOptions
from pulse.handlers.surroundings import Surroundings

logger = logging.getLogger("pulse")


class Registry:
    """The handlers of one client, by topic."""

    def __init__(self, retry_undecodable: bool = False, hold: Hold | None = None) -> None:
        self._retry_undecodable = retry_undecodable
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
        self.check_free(topic, function)
        handler = Handler(topic, function, names, options)
        handler.retry_undecodable = self._retry_undecodable
        handler.hold = self.hold
        self._handlers[topic] = handler
        return handler

    def check_free(self, topic: str, function: Callable[..., Any]) -> None:
        """Raise InvalidHandler unless the function may become the handler of the topic.

        A function takes the place of an earlier one that was defined under the same name in the same module:
        that is what a notebook does when a cell runs again.
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
        """Return these topics, or all for None. Raises InvalidHandler for one that has no handler."""
        if topics is None:
            return list(self._handlers)
        if isinstance(topics, str):
            raise InvalidArgument(f"topics has to be a list of topics, not the string {topics!r}.")
        wanted = list(dict.fromkeys(topics))
        if not wanted:
            raise InvalidArgument(
                "topics is empty: name some, or leave it out to serve all that have a handler."
            )
        if unknown := [topic for topic in wanted if topic not in self._handlers]:
            known = ", ".join(self._handlers) or "none"
            raise InvalidHandler(
                f"There is no handler for {', '.join(map(str, unknown))}; there are: {known}."
            )
        return wanted

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)
