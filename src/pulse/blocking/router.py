"""How functions become handlers of a `SyncPulse`, also without a client: in a `SyncRouter`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from pulse.blocking.job_decorator import SyncJob, SyncJobDecorator
from pulse.client.job_decorator import check_is_topic
from pulse.client.router import RoutedHandlers
from pulse.handlers.options import HandlerOptions, JobOptions, make_options

if TYPE_CHECKING:
    from pulse.blocking.verbs import SyncVerbs


class SyncRegistering:
    """Registration of handlers, for `SyncPulse` and `SyncRouter`."""

    def job(self, topic: str, /, **options: Unpack[JobOptions]) -> SyncJobDecorator:
        """Register the decorated function as the handler of a topic. It becomes a `SyncJob`."""
        check_is_topic(topic)
        checked = make_options(options)
        return SyncJobDecorator(
            lambda function: self._register(topic, function, sys._getframe(2).f_locals, checked)
        )

    def register(
        self, topic: str, function: Callable[..., Any], /, **options: Unpack[JobOptions]
    ) -> SyncJob[..., ..., Any]:
        """Register a function as the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals, make_options(options))

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        raise NotImplementedError


class SyncRouter(SyncRegistering, RoutedHandlers):
    """Collects handlers and schedules without a client. `p.include(router)` adds them to a `SyncPulse`."""

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        if isinstance(function, SyncJob):
            function = function.function
        handler = self._collect(topic, function, names, options)
        return SyncJob(cast("SyncVerbs", self._target), handler)
