"""The handlers and schedules of the application: those of all clients in the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

from pulse.client.client import existing_clients
from pulse.client.schedule_declarations import Declarations
from pulse.handlers.handler import Handler, full_name
from pulse.handlers.registry import Registry


class Served(NamedTuple):
    """A handler, and the client that has it."""

    client: Any
    handler: Handler


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

    def topics(self) -> set[str]:
        return {topic for client in self.clients for topic in registry_of(client)}

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
