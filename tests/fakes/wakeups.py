"""The line between replicas, and whoever dispatches, as lists of what they were told."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pulse_server.domain.jobs import Claim
from pulse_server.domain.transitions import Transition
from pulse_server.repos.wakeups import Wakeup


class FakeWakeupLine:
    """Keeps what was announced. `deliver` plays another replica's message."""

    def __init__(self) -> None:
        self.topics: list[set[str]] = []
        self.ended: list[set[Claim]] = []
        self.lapsed: list[set[Claim]] = []
        self.gate_changes = 0
        self.watching = 0
        self.transitions: list[Transition] = []
        self._heard: list[Callable[[Wakeup], None]] = []

    def announce(self, wakeup: Wakeup) -> None:
        self.watching += wakeup.watching
        self.transitions.extend(wakeup.transitions)
        self.gate_changes += wakeup.gate_changed
        if wakeup.lapsed:
            self.lapsed.append(set(wakeup.lapsed))
        if wakeup.topics:
            self.topics.append(set(wakeup.topics))
        if wakeup.ended:
            self.ended.append(set(wakeup.ended))

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        self._heard.append(heard)

    def deliver(self, wakeup: Wakeup) -> None:
        for heard in self._heard:
            heard(wakeup)


class FakeDispatcher:
    """Keeps what it was asked. `has_room_for` are the topics that a worker here can take."""

    def __init__(self, has_room_for: Collection[str] = ()) -> None:
        self.has_room_for = set(has_room_for)
        self.woken: list[set[str] | None] = []
        self.stopped: list[Claim] = []
        self.lapsed: list[Claim] = []

    def wake(self, topics: Collection[str] | None) -> Collection[str]:
        self.woken.append(None if topics is None else set(topics))
        return set(topics or ()) - self.has_room_for

    def stop_claims(self, claims: Collection[Claim]) -> None:
        self.stopped.extend(claims)

    def lapse_claims(self, claims: Collection[Claim]) -> None:
        self.lapsed.extend(claims)
