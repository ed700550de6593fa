"""The line between servers, as lists of what was announced."""

from __future__ import annotations

from collections.abc import Callable

from pulse_server.jobs.rules import Claim
from pulse_server.wakeups.watchers import Transition, Wakeup


class FakeWakeupLine:
    """Keeps what was announced. `deliver` plays another replica's message."""

    def __init__(self) -> None:
        self.topics: list[set[str]] = []
        self.ended: list[set[Claim]] = []
        self.lapsed: list[set[Claim]] = []
        self.gate_changes = 0
        self.watching = 0
        self.awaiting = 0
        self.asking = 0
        self.transitions: list[Transition] = []
        self.progress: list[Transition] = []
        self._heard: list[Callable[[Wakeup], None]] = []

    def announce(self, wakeup: Wakeup) -> None:
        self.watching += wakeup.watching
        self.awaiting += wakeup.awaiting
        self.asking += wakeup.asking
        self.transitions.extend(wakeup.transitions)
        self.progress.extend(wakeup.progress)
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
