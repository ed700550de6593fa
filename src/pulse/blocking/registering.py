"""How functions become handlers of a `SyncPulse` or a `SyncRouter`: by a decorator, or by a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from pulse.blocking.job_decorator import SyncJob, SyncJobDecorator
from pulse.client.registering import check_is_topic
from pulse.handlers.options import HandlerOptions, JobOptions, make_options


class SyncRegistering:
    """What a `SyncPulse` and a `SyncRouter` have in common."""

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
