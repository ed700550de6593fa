"""Handlers that are collected without a client, for a `SyncPulse`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pulse.blocking.job_decorator import SyncJob
from pulse.blocking.registering import SyncRegistering
from pulse.client.router import RoutedHandlers
from pulse.handlers.options import HandlerOptions

if TYPE_CHECKING:
    from pulse.blocking.verbs import SyncVerbs


class SyncRouter(SyncRegistering, RoutedHandlers):
    """Collects handlers and schedules without a client. `p.include(router)` adds them to a `SyncPulse`."""

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        if isinstance(function, SyncJob):
            function = function.function
        handler = self._collect(topic, function, names, options)
        return SyncJob(cast("SyncVerbs", self._target), handler)
