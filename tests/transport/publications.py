"""What a server counts and wakes, beside what its watchers see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pulse_server.app import App
from pulse_server.base.metrics import Counter as Metric


class Publications:
    """Records which methods of the roster were called, and so for what dispatch was woken."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self._metrics = app.metrics
        self.woken: list[str] = []
        for method in ("wake", "stop_claims", "expire_claims"):
            monkeypatch.setattr(
                app.dispatch.roster, method, self._recording(method, getattr(app.dispatch.roster, method))
            )

    def _recording(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*what: Any) -> Any:
            self.woken.append(method)
            return call(*what)

        return record

    def counted(self) -> Counter[str]:
        """How many transitions to each status the metrics count."""
        metrics = self._metrics
        given_back = _sum(metrics.reaped) - _sum(metrics.failed, "lease_expired")
        waiting = _sum(metrics.snoozed) + _sum(metrics.suspended)
        return +Counter(
            PENDING=_sum(metrics.submitted) + _sum(metrics.redriven),
            RUNNING=_sum(metrics.claimed),
            COMPLETED=_sum(metrics.completed),
            RETRYING=_sum(metrics.retried) + _sum(metrics.released) + given_back + waiting,
            DEAD_LETTERED=_sum(metrics.dead_lettered),
            CANCELED=_sum(metrics.canceled),
        )


def _sum(metric: Metric, *labels: str) -> int:
    return int(sum(value for names, value in metric.values.items() if set(labels) <= set(names)))
