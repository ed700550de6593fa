"""The handlers and schedules of the application: those of all clients in the process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from pulse.client import existing_clients
from pulse.handlers.handler import NO_OPTIONS, Handler, full_name
from pulse.handlers.registry import Registry
from pulse.schedules import Declarations


class Served(NamedTuple):
    """A handler, and the client that has it."""

    client: Any
    handler: Handler


class Known(NamedTuple):
    """What a kit has to know of the handlers of a client, without a reference to them."""

    size: int
    topics: frozenset[str]
    with_options: tuple[str, ...]
    """The topics of handlers with options, which the kit declares."""
    have_resources: bool


# For all kits of the process: an application with many handlers must not pay for each in every test.
_known: weakref.WeakKeyDictionary[Any, Known] = weakref.WeakKeyDictionary()


class Handlers:
    """Finds handlers by topic. Clients and handlers may come at any time."""

    def __init__(self, clients: tuple[Any, ...]) -> None:
        """Without `clients`, all clients of the process count."""
        self._clients = clients

    def use(self, clients: tuple[Any, ...]) -> None:
        """Take the handlers and schedules of these clients from now on."""
        self._clients = clients

    @property
    def clients(self) -> list[Any]:
        return list(self._clients) or existing_clients()

    def topics(self) -> frozenset[str]:
        """Return the topics that have a handler."""
        return frozenset().union(*(self.known(client).topics for client in self.clients))

    def known(self, client: Any) -> Known:
        """Return what is known of the client's handlers: these are all that it has now."""
        known = _known.get(client)
        if known is None or known.size != len(client._registry):
            handlers = self.of(client)
            known = _known[client] = Known(
                len(client._registry),
                frozenset(handler.topic for handler in handlers),
                tuple(handler.topic for handler in handlers if handler.options is not NO_OPTIONS),
                any(handler.resources for handler in handlers),
            )
        return known

    def find(self, topic: str) -> Served:
        """Return the handler of the topic. Raises AssertionError unless there is exactly one."""
        found = self._all(topic)
        if len(found) == 1:
            return found[0]
        if not found:
            raise AssertionError(
                f"No client of this process has a handler for {topic!r}: import the module that registers it."
            )
        names = " and ".join(sorted(full_name(served.handler.function) for served in found))
        raise AssertionError(
            f"{len(found)} clients have a handler for {topic!r}: {names}. Choose a client with "
            "pulse_kit.use(client)."
        )

    def look_for(self, topic: str) -> Served | None:
        """Return the handler of the topic, if there is exactly one."""
        found = self._all(topic)
        return found[0] if len(found) == 1 else None

    def _all(self, topic: str) -> list[Served]:
        if len(self._now(topic)) > 1:
            gc.collect()  # clients of earlier tests may wait to be collected
        return self._now(topic)

    def _now(self, topic: str) -> list[Served]:
        every = [(client, registry_of(client).get(topic)) for client in self.clients]
        return [Served(client, handler) for client, handler in every if handler is not None]

    def of(self, client: Any) -> list[Handler]:
        """Return all handlers of the client."""
        registry = registry_of(client)
        return [handler for topic in registry if (handler := registry.get(topic)) is not None]

    def schedules(self) -> Iterator[Any]:
        """Yield the schedules that the clients declare."""
        for client in self.clients:
            declared: Declarations = getattr(client, "_async", client)._declarations
            yield from declared


def registry_of(client: Any) -> Registry:
    registry: Registry = client._registry
    return registry
