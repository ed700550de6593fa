"""Tells whoever dispatches, here and on the other replicas, that there is work or that a claim has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from pulse_server.domain.jobs import Claim
from pulse_server.repos.wakeups import Wakeup, WakeupLine


class Dispatcher(Protocol):
    def wake(self, topics: Collection[str] | None) -> Collection[str]:
        """Look for work in these topics (None: in all). Returns the topics that nobody here can take now."""
        ...

    def stop_claims(self, claims: Collection[Claim]) -> None:
        """Tell the workers that these claims have ended."""
        ...

    def lapse_claims(self, claims: Collection[Claim]) -> None:
        """Do the same, and trust their workers with little until they have answered for something."""
        ...


class Signals:
    def __init__(self, line: WakeupLine) -> None:
        self._line = line
        self._dispatcher: Dispatcher | None = None
        self._gate_changed_elsewhere: Callable[[], None] = lambda: None
        self._claims_unknown: Callable[[], None] = lambda: None
        line.listen(self._on_wakeup)

    def attach(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def ready(self, topics: Collection[str]) -> None:
        """There are new ready jobs. Other replicas hear of it only if no worker here has room for them."""
        if not topics:
            return
        untaken = self._dispatcher.wake(topics) if self._dispatcher else topics
        if untaken:
            self._line.announce(Wakeup(topics=frozenset(untaken)))

    def ended(self, claims: Collection[Claim]) -> None:
        """These claims were ended by someone other than their worker, wherever it is connected."""
        if not claims:
            return
        if self._dispatcher:
            self._dispatcher.stop_claims(claims)
        self._line.announce(Wakeup(ended=tuple(claims)))

    def lapsed(self, claims: Collection[Claim]) -> None:
        """These claims ended because their workers kept silent."""
        if not claims:
            return
        if self._dispatcher:
            self._dispatcher.lapse_claims(claims)
        self._line.announce(Wakeup(lapsed=tuple(claims)))

    def gate_changed(self) -> None:
        """The pause switch was turned on this replica; this one knows."""
        self._line.announce(Wakeup(gate_changed=True))

    def on_gate_changed_elsewhere(self, changed: Callable[[], None]) -> None:
        self._gate_changed_elsewhere = changed

    def on_unknown_claims(self, unknown: Callable[[], None]) -> None:
        """Have this called when claims may have ended whose announcement was lost."""
        self._claims_unknown = unknown

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        if wakeup.gate_changed:
            self._gate_changed_elsewhere()
        if self._dispatcher:
            if wakeup.topics is None or wakeup.topics:
                self._dispatcher.wake(wakeup.topics)
            self._dispatcher.stop_claims(wakeup.ended)
            self._dispatcher.lapse_claims(wakeup.lapsed)
        if wakeup.claims_unknown:
            self._claims_unknown()
