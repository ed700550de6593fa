"""The verbs of the pause switch, blocking."""

from __future__ import annotations

from datetime import timedelta

from pulse.blocking.bridge import Bridge
from pulse.client.pausing import Pausing
from pulse.models.dispatch import DispatchStatus


class SyncPausing:
    """What a `SyncPulse` can do with dispatch as a whole."""

    _pulse: Pausing
    _bridge: Bridge

    def pause(self, reason: str = "", topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Hand out no more jobs, of one topic or of all, until `resume`. See `Pulse.pause`."""
        self._bridge.call(self._pulse.pause, reason, topic, timeout=timeout)

    def resume(self, topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Lift the pause of one topic, or of everything; topics that are paused by name stay so."""
        self._bridge.call(self._pulse.resume, topic, timeout=timeout)

    def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return what is paused, since when and why."""
        return self._bridge.call(self._pulse.dispatch_status, timeout=timeout)
